"""qkv claims: claims of the literature as experiments. Without a command it lists them; run, page and table."""

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
    from qkv.claims.record import best_record, cost, read_records, shown_verdict

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
                table.add_row("", f"[bold]{shown_verdict(record)}[/bold], {record['facts']['date']}, {cost(record)}")
        console.print(f"[bold]{topic}[/bold]")
        console.print(table, "")
    ran = f"{len(records)} of {len(statements)} were run here, those with a verdict" if records else "none of them was run here"
    console.print(f"{ran}; run one: qkv claims run NAME --quick", markup=False)


@claims_app.command("run")
def run_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A claim (see qkv claims), or your own file that ends in .py.")],
    size: Annotated[str, typer.Option(help="cpu: 10 minutes on 2 cores at most; gpu: larger, where the claim has it.")] = "cpu",
    quick: Annotated[bool, typer.Option("--quick", help="About a minute, 3 seeds; the verdict is marked so.")] = False,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds; more can decide what is undecided.", min=1)] = None,
    text: Annotated[Path | None, typer.Option(help="Plain text to use instead of the artificial language.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; by default one for each core.", min=1)] = None,
    on: Annotated[str, typer.Option(help="local; or ray, the cluster of RAY_ADDRESS.")] = "local",
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute everything again.")] = False,
    out: Out = RUNS,
) -> None:
    """Run a claim, or the rest of it: what was computed before is used. Writes claim.json, table, picture and page."""
    if size not in ("cpu", "gpu"):
        raise ConfigError(f"--size {size} is not known; choose cpu or gpu, or --quick")
    if quick and size == "gpu":
        raise ConfigError("--quick is a size of its own, on the CPU; leave --size out")
    from qkv.claims.claim import find_claim
    from qkv.claims.experiment import RunOptions, run_claim
    from qkv.claims.page import write_record
    from qkv.claims.record import PAGE, cost, explain, read_record, shown_verdict
    from qkv.training.progress import duration

    options = RunOptions("quick" if quick else size, seeds, text, workers, on, fresh)
    before = read_record(out / find_claim(name).name / options.size)
    result = run_claim(name, out, options, lambda line: print(line, file=sys.stderr, flush=True))
    given = [*(["--seeds", str(seeds)] if seeds else []), *(["--text", str(text)] if text else [])]
    folder = out / result.named.name / result.size
    record = write_record(result, folder, given)
    print(result.named.claim.statement)
    for label, findings in (("", record["parts"]), ("control: ", record["controls"])):
        for one in findings:
            print(f"  {label}{one['says']}: {one['outcome']} ({explain(one)})")
    print(f"{shown_verdict(record)}: {record['reason']}")
    if before and before[0]["verdict"] != record["verdict"]:
        print(f"the verdict has changed: it was {shown_verdict(before[0])} on {before[0]['facts']['date']}")
    old = record["facts"]["cells from other code"]
    if old:
        print(f"{old} of {record['facts']['cells']} cells were computed by other code of qkv; --fresh computes them again")
    cpu = duration(record["facts"]["cpu_seconds"])
    print(f"{len(result.seeds)} seeds, {cost(record)} for all cells together, of which {cpu} of CPU; {folder / PAGE}")


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
) -> None:
    """Print the verdicts as a Markdown table, or put it into a page of documentation."""
    from qkv.claims.documents import replace_results, shown_records, verdict_row, verdicts_table

    records = _records(runs)
    if into is None:
        print(verdicts_table(verdict_row(record) for record, _ in shown_records(records)))
    else:
        print(replace_results(records, into))


def _records(runs: Path) -> dict[str, Any]:
    from qkv.claims.record import read_records

    records = read_records(runs)
    if not records:
        raise ConfigError(f"{runs}: no claim was run there; run one first: qkv claims run NAME --quick")
    return records
