"""qkv claims: claims of the literature as experiments. Without a command it lists them; run, page and table."""

import json
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from qkv.base.errors import ConfigError

claims_app = typer.Typer(help="Test claims of the literature by small experiments, each with a verdict.")

Out = Annotated[Path, typer.Option(help="Folder of the claims that were run.")]
RUNS = Path("runs/claims")


@claims_app.callback(invoke_without_command=True)
def list_command(context: typer.Context, out: Out = RUNS) -> None:
    """Test claims of the literature by small experiments, each with a verdict; without a command, list them."""
    if context.invoked_subcommand:
        return
    from rich.console import Console
    from rich.table import Table

    from qkv.claims.claim import TOPICS, claim_names, find_claim
    from qkv.claims.documents import PUBLISHED
    from qkv.claims.record import best_record, cost, read_records, shown_verdict

    published = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    records = {name: best_record(sizes)[0] for name, sizes in read_records(out).items()}
    console = Console(highlight=False, file=sys.stdout)
    claims = {name: find_claim(name).claim for name in claim_names()}
    own = {name: record for name, record in records.items() if name not in claims}
    statements = [(claim.topic, name, claim.statement) for name, claim in claims.items()]
    statements += [(record["topic"], name, record["statement"]) for name, record in own.items()]
    for topic in TOPICS:
        table = Table(show_header=False, box=None, pad_edge=False)
        table.add_column(no_wrap=True)
        for _, name, statement in sorted(one for one in statements if one[0] == topic):
            table.add_row(name, statement)
            if record := records.get(name):
                table.add_row("", f"[bold]{shown_verdict(record)}[/bold], {record['facts']['date']}, {cost(record)}, run here")
            elif name in published:
                table.add_row("", f"[dim]{published[name]}, published[/dim]")
        console.print(f"[bold]{topic}[/bold]")
        console.print(table, "")
    console.print(f"{len(records)} of {len(statements)} were run here. Times are of one core; --quick takes about a minute.")
    console.print("read one: qkv claims show NAME; run one: qkv claims run NAME --quick", markup=False)


@claims_app.command("show")
def show_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A claim (see qkv claims), or your own file that ends in .py.")],
) -> None:
    """Show what a claim says, predicts and compares, without running it."""
    from qkv.claims.claim import find_claim

    named = find_claim(name)
    claim = named.claim
    print(f"{named.name}: {claim.statement}\n\n{claim.explanation}\n\n    {claim.formula}\n")
    print(f"source: {claim.source}\nmeasured: {claim.measured}\npredicted: {claim.prediction}")
    if claim.revised:
        print(f"changed after earlier figures: {claim.revised}")
    print(f"what would change the verdict: {claim.changes}\n\nvariants: {'; '.join(claim.variants)}")
    for label, rules in (("the claim holds if", claim.parts), ("also predicted", claim.further), ("controls", claim.controls)):
        if rules:
            print(f"\n{label}:")
        for rule in rules:
            print(f"- {rule.says} ({claim.units[rule.figure]}, {rule.asks})")
    print(f"\nsizes: {', '.join(claim.sizes)}; {claim.seeds} seeds; file: {named.file}")


@claims_app.command("run")
def run_command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Claims (see qkv claims), or your own files that end in .py.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All claims that have this size.")] = False,
    size: Annotated[str, typer.Option(help="cpu: 10 minutes on 2 cores at most; gpu: larger, where the claim has it.")] = "cpu",
    quick: Annotated[bool, typer.Option("--quick", help="About a minute, 3 seeds; the verdict is marked so.")] = False,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds; more can decide what is undecided.", min=1)] = None,
    first_seed: Annotated[int, typer.Option(help="The first seed; pilots of qkv's claims used 100 and above.", min=1)] = 1,
    text: Annotated[Path | None, typer.Option(help="Plain text to use instead of the artificial language.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; by default one for each core.", min=1)] = None,
    on: Annotated[str, typer.Option(help="local; or ray, the cluster of RAY_ADDRESS.")] = "local",
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute everything again.")] = False,
    out: Out = RUNS,
) -> None:
    """Run claims, or the rest of them: what was computed before is used. Writes claim.json, table, picture and page of each."""
    if size not in ("cpu", "gpu"):
        raise ConfigError(f"--size {size} is not known; choose cpu or gpu, or --quick")
    if quick and size == "gpu":
        raise ConfigError("--quick is a size of its own, on the CPU; leave --size out")
    if bool(names) == all_:
        raise ConfigError("give the names of claims (see qkv claims), or --all")
    from qkv.claims.claim import claim_names, find_claim
    from qkv.claims.experiment import RunOptions, run_claims
    from qkv.claims.page import write_record
    from qkv.claims.record import read_record

    options = RunOptions("quick" if quick else size, seeds, first_seed, text, workers, on, fresh)
    chosen = names or [name for name in claim_names() if options.size in find_claim(name).claim.sizes]
    before = {name: read_record(out / name / options.size) for name in (find_claim(one).name for one in chosen)}
    given = [*(["--seeds", str(seeds)] if seeds else []), *(["--first-seed", str(first_seed)] if first_seed > 1 else [])]
    given += ["--text", str(text)] if text else []
    if len(chosen) == 1:
        print(f"predicted: {find_claim(chosen[0]).claim.prediction}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    try:
        for result in run_claims(chosen, out, options, lambda line: print(line, file=sys.stderr, flush=True)):
            folder = out / result.named.name / result.size
            old, _ = before[result.named.name] or (None, "")
            _print_verdict(write_record(result, folder, given), old, folder)
    except KeyboardInterrupt:
        print(f"stopped; cells that are done are kept: run the same command again{', without --fresh' * fresh}", file=sys.stderr)
        raise


def _print_verdict(record: dict[str, Any], before: dict[str, Any] | None, folder: Path) -> None:
    """Print the verdict on a claim with its parts, and what it was before."""
    from qkv.claims.record import PAGE, explain, findings, shown_verdict
    from qkv.training.progress import duration

    facts = record["facts"]
    print(f"{record['name']}: {record['statement']}")
    for label, one in findings(record):
        print(f"  {label}{one['says']}: {one['outcome']} ({explain(one)})")
    print(f"{shown_verdict(record)}: {record['reason']}")
    if before and before["verdict"] != record["verdict"]:
        print(f"the verdict has changed: it was {shown_verdict(before)} on {before['facts']['date']}")
    if old := facts["cells from other code"]:
        print(f"{old} of {facts['cells']} cells were computed by other code of qkv; --fresh computes them again")
    time = f"{duration(facts['cpu_seconds'])} of one core for all cells together, {duration(facts['seconds'])} by the clock"
    print(f"{len(record['seeds'])} seed{'s' * (len(record['seeds']) > 1)}, {time}; {folder / PAGE}", flush=True)


@claims_app.command("page")
def page_command(
    to: Annotated[Path, typer.Option("--out", help="Folder to write index.html into.")],
    runs: Annotated[Path, typer.Option(help="Folder of the claims that were run.")] = RUNS,
) -> None:
    """Write a gallery of all claims that were run: one page that works offline."""
    from qkv.claims.page import write_gallery

    print(write_gallery(_records(runs), to))


@claims_app.command("table")
def table_command(
    runs: Annotated[Path, typer.Option(help="Folder of the claims that were run.")] = RUNS,
    into: Annotated[
        Path | None,
        typer.Option(help="Markdown page with two marks, between which table and figures are put; other claims there stay."),
    ] = None,
    publish: Annotated[
        bool, typer.Option("--publish", help="Also write its verdicts into the package, for `qkv claims`.")
    ] = False,
) -> None:
    """Print the verdicts as a Markdown table, or put it into a page of documentation."""
    from qkv.claims import documents

    if publish and into is None:
        raise ConfigError("--publish takes the verdicts of a page; add --into docs/claims.md")
    records = _records(runs)
    if into is None:
        print(documents.verdicts_table(documents.verdict_row(record) for record, _ in documents.shown_records(records)))
        return
    print(documents.replace_results(records, into))
    if publish:
        documents.publish(into)


def _records(runs: Path) -> dict[str, Any]:
    from qkv.claims.record import read_records

    records = read_records(runs)
    if not records:
        raise ConfigError(f"{runs}: no claim was run there; run one first: qkv claims run NAME --quick")
    return records
