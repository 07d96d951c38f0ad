"""qkv heads RUN [DEV]: what each head does, by the drop of the score without it."""

import itertools
from pathlib import Path
from typing import Annotated, Any

import typer

from qkv.base.errors import ConfigError
from qkv.cli.lines import input_lines
from qkv.cli.options import Device, check_out, run_folder

SHOWN = 10  # heads printed


def heads_command(
    run: Annotated[Path, typer.Argument(parser=run_folder, metavar="RUN", help="Folder of a run of any model with attention.")],
    dev: Annotated[
        str,
        typer.Argument(
            metavar="DEV",
            help="Held-out texts, one per line; for a translator a source, a tab and a target; for a fine-tuned model examples.",
        ),
    ],
    limit: Annotated[int, typer.Option(min=1, help="Texts to score at most.")] = 200,
    out: Annotated[Path | None, typer.Option(help="File to write: page.html or numbers.json.")] = None,
    device: Device = "auto",
) -> None:
    """Measure what a model loses without each of its heads; `qkv look` shows it beside what a head attends to."""
    check_out(out, ".html", ".json")
    from rich.progress import Progress

    from qkv.inference.head_effects import effects_with_patterns, head_effects
    from qkv.inference.load import inspectable
    from qkv.lens.page import write_page

    loaded = inspectable(run, device, "heads")
    texts = list(itertools.islice(_texts(loaded, dev), limit))
    with Progress(transient=True) as shown:
        task = shown.add_task("heads removed", total=None)
        effects = head_effects(loaded, texts, lambda done, of: shown.update(task, completed=done, total=of))
    if out is not None:
        print(write_page(effects_with_patterns(loaded, texts, effects), out))
        return
    print(f"{effects.figure}: {effects.score:.4f} on {effects.texts:,} texts; the drop without a head, largest first:")
    parts = {one.name: one for one in loaded.inspect(*_first(loaded, texts)).attentions()}
    for name, head, drop in effects.ranked()[:SHOWN]:
        print(f"  {drop:+.4f}  {parts[name].part}, layer {parts[name].layer + 1}, head {head + 1}")
    harmless = sum(drop <= 0 for _, _, drop in effects.ranked())
    print(f"{harmless} of {len(effects.ranked())} heads can go without a loss, one at a time")


def _texts(loaded: Any, dev: str) -> Any:
    """Yield what the run is scored on."""
    if loaded.loads_as == "encoder" and loaded.recipe.job == "finetuning":
        from qkv.cli.examples import read_examples_for

        yield from read_examples_for(loaded.finetuned(), (dev,), None)
        return
    for number, line in enumerate(input_lines(Path(dev)), 1):
        if loaded.loads_as != "translator":
            yield from [line] if line.strip() else []
            continue
        source, tab, target = line.partition("\t")
        if not tab or "\t" in target:
            raise ConfigError(f"{dev}, line {number:,}: give a source, one tab and a target on each line")
        yield source, target


def _first(loaded: Any, texts: list[Any]) -> tuple[Any, ...]:
    """Return arguments of `inspect` that decode nothing."""
    if loaded.loads_as == "translator":
        return texts[0]
    return ("a", "") if loaded.loads_as == "generator" else ("a",)
