"""qkv bench train|pretrain|decode|generate: speed, side by side with peers; qkv bench length: the cost of long texts."""

import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.base.errors import ConfigError
from qkv.base.files import write_error

if TYPE_CHECKING:
    from qkv.bench.length_report import LengthReport
    from qkv.bench.report import SpeedReport

bench_app = typer.Typer(help="Measure speed, beside other toolkits where they are installed.", no_args_is_help=True)

Peers = Annotated[
    bool,
    typer.Option("--peers", help="Also run other toolkits that are installed; needs a checkout of qkv, which has their code."),
]
SizeName = Annotated[str, typer.Option("--size", help="tiny, small, base or big.")]
Rounds = Annotated[int, typer.Option(help="Rounds; every system has its turn in each.", min=1)]
Seed = Annotated[int, typer.Option(help="Seed of the texts and the weights.", min=0)]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Only = Annotated[list[str] | None, typer.Option(help="Only systems with this in their name; may be repeated.")]
MAX_POSITIONS = 512  # of a BERT or an ELECTRA
Out = Annotated[Path | None, typer.Option(help="Folder for the table, all numbers and plots.")]


@bench_app.command("train")
def train_command(
    peers: Peers = False,
    size: SizeName = "small",
    rounds: Rounds = 5,
    updates: Annotated[int, typer.Option(help="Updates in the comparison of losses; 0 leaves it out.", min=0)] = 200,
    only: Only = None,
    seed: Seed = 1,
    device: Device = "auto",
    out: Out = None,
) -> None:
    """Training: target tokens a second, peak memory, and the loss after the same number of updates."""
    from qkv.bench.benchmarks import BenchmarkOptions, bench_training
    from qkv.bench.workload import SIZES

    options = BenchmarkOptions(peers, tuple(only or ()), _one_of(SIZES, size), rounds, seed, device, _command())
    _check_folder(out)
    _finish(bench_training(options, updates, _show), out)


@bench_app.command("pretrain")
def pretrain_command(
    peers: Peers = False,
    size: Annotated[
        str,
        typer.Option(
            "--size",
            help="bert-mini, bert-base, electra-small, gpt-mini, gpt2-small, xlnet-mini, xlnet-base, t5-mini, t5-base; "
            "bert-12x256, xlnet-12x256 or t5-12x256, 12 layers of width 256; elmo-small; tiny, or tiny- and a kind.",
        ),
    ] = "bert-mini",
    length: Annotated[int, typer.Option(help="Tokens in a row; at most 512, of a GPT more.", min=8)] = 128,
    rounds: Rounds = 5,
    only: Only = None,
    seed: Seed = 1,
    device: Device = "auto",
    out: Out = None,
) -> None:
    """Pretraining of an encoder, a GPT, a T5 or an ELMo: tokens a second, the share of the GPU's peak, peak memory."""
    from qkv.bench.benchmarks import BenchmarkOptions, bench_pretraining
    from qkv.bench.workload import ENCODERS, GPTS

    options = BenchmarkOptions(peers, tuple(only or ()), _one_of(ENCODERS, size), rounds, seed, device, _command())
    if length > MAX_POSITIONS and size not in GPTS:
        raise ConfigError(f"--length: {size} reads at most {MAX_POSITIONS} tokens; {', '.join(GPTS)} read more")
    _check_folder(out)
    _finish(bench_pretraining(options, length, _show), out)


@bench_app.command("decode")
def decode_command(
    peers: Peers = False,
    size: SizeName = "small",
    rounds: Rounds = 5,
    beam: Annotated[str, typer.Option(help="Widths of the beam; 1 is greedy.")] = "1,5",
    batch: Annotated[str, typer.Option(help="Sentences decoded at a time.")] = "1,32",
    only: Only = None,
    seed: Seed = 1,
    device: Device = "auto",
    out: Out = None,
) -> None:
    """Decoding: sentences a second and peak memory, all outputs of the same length."""
    from qkv.bench.benchmarks import BenchmarkOptions, bench_decoding
    from qkv.bench.workload import SIZES

    options = BenchmarkOptions(peers, tuple(only or ()), _one_of(SIZES, size), rounds, seed, device, _command())
    _check_folder(out)
    _finish(bench_decoding(options, _numbers("--beam", beam), _numbers("--batch", batch), _show), out)


@bench_app.command("generate")
def generate_command(
    peers: Peers = False,
    size: Annotated[str, typer.Option("--size", help="gpt-mini, gpt2-small or tiny-gpt.")] = "gpt-mini",
    rounds: Rounds = 5,
    batch: Annotated[str, typer.Option(help="Prompts at a time.")] = "1,64",
    only: Only = None,
    seed: Seed = 1,
    device: Device = "auto",
    out: Out = None,
) -> None:
    """Generation: continued prompts a second and peak memory, all texts of the same length."""
    from qkv.bench.benchmarks import BenchmarkOptions, bench_generation
    from qkv.bench.workload import GPTS

    options = BenchmarkOptions(peers, tuple(only or ()), _one_of(GPTS, size), rounds, seed, device, _command())
    _check_folder(out)
    _finish(bench_generation(options, _numbers("--batch", batch), _show), out)


@bench_app.command("length")
def length_command(
    lengths: Annotated[str, typer.Option(help="Tokens of a text. [default: 512 to 8192, on a GPU 1024 to 65536]")] = "",
    rows: Annotated[int, typer.Option(help="Texts at a time.", min=1)] = 1,
    width: Annotated[int, typer.Option(help="Width of all encoders.", min=1)] = 512,
    heads: Annotated[int, typer.Option(help="Heads of attention.", min=1)] = 8,
    layers: Annotated[int, typer.Option(help="Layers of all encoders.", min=1)] = 2,
    rounds: Rounds = 3,
    only: Only = None,
    seed: Seed = 1,
    device: Device = "auto",
    out: Out = None,
) -> None:
    """Time and memory of encoders against the length of texts: RNN, convolution, full and sparse attention."""
    from qkv.bench.benchmarks import BenchmarkOptions, bench_length
    from qkv.bench.length import choose_encoders, encoder_size

    options = BenchmarkOptions(only=tuple(only or ()), rounds=rounds, seed=seed, device=device, command=_command())
    size, wanted = encoder_size(width, heads, layers), _numbers("--lengths", lengths) if lengths else []
    choose_encoders(options.only)
    _check_folder(out)
    _finish(bench_length(options, size, wanted, rows, _show), out)


def _one_of(sizes: Iterable[str], name: str) -> str:
    if name not in sizes:
        raise ConfigError(f"--size {name} is not known; choose {', '.join(sizes)}")
    return name


def _numbers(option: str, text: str) -> list[int]:
    words = text.split(",")
    if not all(word.isdigit() and int(word) > 0 for word in words):
        raise ConfigError(f"{option} {text}: expected numbers above 0 with commas between them, such as 1,32")
    return list(map(int, words))


def _command() -> str:
    return shlex.join(["qkv", *sys.argv[1:]])


def _show(progress: str) -> None:
    print(progress, file=sys.stderr, flush=True)


def _check_folder(out: Path | None) -> None:
    """Make the folder before minutes of measuring."""
    if out is None:
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(out, error) from None
    if not os.access(out, os.W_OK):
        raise ConfigError(f"{out}: not allowed to write there; choose another --out")


def _finish(report: "SpeedReport | LengthReport", out: Path | None) -> None:
    """Print the table and write the folder; raise if nothing could be measured."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(report.table())
    for note in report.notes():
        console.print(note, markup=False)
    if not report.measured:
        raise ConfigError("no system could be measured; the lines above say why")
    if out is not None:
        report.write(out)
        console.print(f"written to {out}", markup=False)
