"""All commands, in the order and groups in which `qkv --help` lists them."""

from typing import Annotated

import typer

from qkv import __version__
from qkv.cli.arithmetic import arithmetic_command
from qkv.cli.attribute import attribute_command
from qkv.cli.backtranslate import backtranslate_command
from qkv.cli.bench import bench_app
from qkv.cli.card import card_command
from qkv.cli.change import change_command
from qkv.cli.claims import claims_app
from qkv.cli.completion import completion_command
from qkv.cli.distil import distil_command
from qkv.cli.doctor import doctor_command
from qkv.cli.embed import embed_command
from qkv.cli.evaluate import evaluate_command
from qkv.cli.export import export_command
from qkv.cli.fill import fill_command
from qkv.cli.generate import generate_command
from qkv.cli.heads import heads_command
from qkv.cli.imports import import_command
from qkv.cli.info import info_command, recipes_command
from qkv.cli.languages import languages_command
from qkv.cli.layers import layers_command
from qkv.cli.lesson import lesson_command
from qkv.cli.look import look_command
from qkv.cli.merge import merge_command
from qkv.cli.patch import patch_command
from qkv.cli.predict import predict_command
from qkv.cli.prepare import prepare_command
from qkv.cli.score import score_command
from qkv.cli.serve import serve_command
from qkv.cli.shrink import shrink_command
from qkv.cli.steps import steps_command
from qkv.cli.sweep import sweep_command
from qkv.cli.tokenizer import tokenizer_app
from qkv.cli.train import train_command
from qkv.cli.translate import translate_command
from qkv.cli.vectors import vectors_app

TRAIN, USE, EXCHANGE, MEASURE = "Train", "Use a trained run", "Exchange with other programs", "This installation"

app = typer.Typer(
    help="Train attention models on your own text, run them, and look inside.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"qkv {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print qkv's version and exit.")
    ] = False,
) -> None:
    pass


app.command("train", rich_help_panel=TRAIN)(train_command)
app.command("sweep", rich_help_panel=TRAIN)(sweep_command)
app.command("prepare", rich_help_panel=TRAIN)(prepare_command)
app.command("distil", rich_help_panel=TRAIN)(distil_command)
app.command("backtranslate", rich_help_panel=TRAIN)(backtranslate_command)
app.command("merge", rich_help_panel=TRAIN)(merge_command)
app.command("recipes", rich_help_panel=TRAIN)(recipes_command)
app.command("shrink", rich_help_panel=TRAIN)(shrink_command)
app.add_typer(tokenizer_app, name="tokenizer", rich_help_panel=TRAIN)
app.add_typer(vectors_app, name="vectors", rich_help_panel=TRAIN)
app.command("translate", rich_help_panel=USE)(translate_command)
app.command("generate", rich_help_panel=USE)(generate_command)
app.command("fill", rich_help_panel=USE)(fill_command)
app.command("embed", rich_help_panel=USE)(embed_command)
app.command("predict", rich_help_panel=USE)(predict_command)
app.command("score", rich_help_panel=USE)(score_command)
app.command("evaluate", rich_help_panel=USE)(evaluate_command)
app.command("look", rich_help_panel=USE)(look_command)
app.command("arithmetic", rich_help_panel=USE)(arithmetic_command)
app.command("change", rich_help_panel=USE)(change_command)
app.command("heads", rich_help_panel=USE)(heads_command)
app.command("patch", rich_help_panel=USE)(patch_command)
app.command("layers", rich_help_panel=USE)(layers_command)
app.command("steps", rich_help_panel=USE)(steps_command)
app.command("attribute", rich_help_panel=USE)(attribute_command)
app.command("lesson", rich_help_panel=USE)(lesson_command)
app.command("serve", rich_help_panel=USE)(serve_command)
app.command("languages", rich_help_panel=USE)(languages_command)
app.command("import", rich_help_panel=EXCHANGE)(import_command)
app.command("export", rich_help_panel=EXCHANGE)(export_command)
app.command("card", rich_help_panel=EXCHANGE)(card_command)
app.command("doctor", rich_help_panel=MEASURE)(doctor_command)
app.command("completion", rich_help_panel=MEASURE)(completion_command)
app.command("info", rich_help_panel=MEASURE)(info_command)
app.add_typer(claims_app, name="claims", rich_help_panel=MEASURE)
app.add_typer(bench_app, name="bench", rich_help_panel=MEASURE)
