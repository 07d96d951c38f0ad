"""qkv distil TEACHER TEXT... --recipe NAME --out RUN: a student learns a teacher's translations."""

from pathlib import Path
from typing import Annotated

import typer

from qkv.cli.options import Device


def distil_command(
    teacher: Annotated[Path, typer.Argument(help="Run that translates the text.")],
    texts: Annotated[list[str], typer.Argument(help="Source-language text, one text per line: files, patterns, or -.")],
    recipe: Annotated[str, typer.Option(help="The student's recipe: a name (`qkv recipes` lists them), or a YAML file.")],
    out: Annotated[Path, typer.Option(help="Folder of the student's run; the teacher's pairs are in OUT.teacher.tsv.")],
    pairs: Annotated[
        list[str] | None, typer.Option(help="Real pairs to mix in: a file, or {pairs: a.tsv, weight: 2}; repeat for several.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value of the student's recipe, such as data.dev=dev.tsv.")
    ] = None,
    min_score: Annotated[float | None, typer.Option(help="Drop pairs of a lower log-probability per token, such as -1.")] = None,
    beam: Annotated[int | None, typer.Option(help="The teacher's beam size; that of its recipe by default.")] = None,
    n_best: Annotated[int | None, typer.Option(help="Translations of each text.")] = None,
    sampling: Annotated[bool, typer.Option("--sample", help="Sample instead of searching for the best.")] = False,
    temperature: Annotated[float | None, typer.Option(help="With --sample: below 1 sharpens, above 1 flattens.")] = None,
    top_k: Annotated[int | None, typer.Option(help="With --sample: the k most likely tokens.")] = None,
    device: Device = "auto",
    engine: Annotated[str | None, typer.Option(help="The teacher's: own, ctranslate2 (fast on a CPU) or onnx.")] = None,
    precision: Annotated[str | None, typer.Option(help="With --engine ctranslate2: float32, int8 or bf16.")] = None,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="Resume although the recipe has changed since.")
    ] = False,
) -> None:
    """Train a student on a teacher's translations of a text; after an interruption the same command goes on."""
    from qkv.base.config import with_settings
    from qkv.jobs.synthesis import distil

    given = {"beam": beam, "n_best": n_best, "sampling": sampling or None, "temperature": temperature, "top_k": top_k}
    distil(
        teacher,
        texts,
        recipe,
        out,
        pairs=[with_settings({}, [f"corpus={corpus}"])["corpus"] for corpus in pairs or []],
        settings=with_settings({}, settings or []),
        min_score=min_score,
        accept_changes=accept_changes,
        device=device,
        engine=engine,
        precision=precision,
        **{name: value for name, value in given.items() if value is not None},
    )
