"""qkv sweep RECIPE --try key=values... --out DIR: train a recipe with many settings, and compare them on dev."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def sweep_command(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe (`qkv recipes` lists them), or a YAML file.")],
    tries: Annotated[
        list[str],
        typer.Option("--try", help="key=values: a list such as 1e-4,3e-4, or a range such as 2..6; repeat for several."),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the sweep; a sweep in it goes on.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, the same in all trials; training.minutes=... limits each.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="Figure on dev to compare by, such as dev_bleu; by default the recipe's own.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Trainings of each setting; their mean counts.")] = 1,
    random: Annotated[int | None, typer.Option(help="Draw so many settings instead of all combinations.")] = None,
    optuna: Annotated[int | None, typer.Option(help="Let Optuna choose so many settings, and end bad trials early.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 1,
    workers: Annotated[int | None, typer.Option(help="Trials at a time; by default one for each GPU, or one.")] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Train trials again that failed.")] = False,
) -> None:
    """Train a recipe with many settings, and compare them on dev; after an interruption the same command goes on."""
    from rich.console import Console
    from rich.table import Table

    from qkv.jobs.sweep import sweep
    from qkv.jobs.trials import show

    options = {"metric": metric, "seeds": seeds, "random": random, "optuna": optuna, "seed": seed, "workers": workers}
    found = sweep(recipe, out, tries, settings or [], lambda line: print(line, flush=True), retry=retry, **options)
    table = Table(
        *(key for key in dict.fromkeys(key for row in found.rows for key in row["settings"])), found.metric, "trials", ""
    )
    for row in found.rows:
        value = "" if row["value"] is None else show(row["value"]) + (f" ± {row['deviation']:.2g}" if row["deviation"] else "")
        table.add_row(*(show(one) for one in row["settings"].values()), value, str(row["trials"]), row["problem"])
    Console(highlight=False, file=sys.stdout).print(table, markup=False)
    print(f"report: {out / 'report.html'}")
    if found.command:
        print(f"best: {found.command}")
