"""The verbs, put together."""

import typer

from qkv.cli.bench import bench_app
from qkv.cli.embed import embed_command
from qkv.cli.evaluate import evaluate_command
from qkv.cli.export import export_command
from qkv.cli.fill import fill_command
from qkv.cli.generate import generate_command
from qkv.cli.imports import import_command
from qkv.cli.info import info_command, recipes_command
from qkv.cli.look import look_command
from qkv.cli.predict import predict_command
from qkv.cli.serve import serve_command
from qkv.cli.tokenizer import tokenizer_app
from qkv.cli.train import train_command
from qkv.cli.translate import translate_command
from qkv.cli.vectors import vectors_app

app = typer.Typer(
    help="Train, run and look inside attention models on your own text.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train")(train_command)
app.command("translate")(translate_command)
app.command("evaluate")(evaluate_command)
app.command("predict")(predict_command)
app.command("fill")(fill_command)
app.command("embed")(embed_command)
app.command("generate")(generate_command)
app.command("serve")(serve_command)
app.command("look")(look_command)
app.command("import")(import_command)
app.command("export")(export_command)
app.command("recipes")(recipes_command)
app.command("info")(info_command)
app.add_typer(tokenizer_app, name="tokenizer")
app.add_typer(bench_app, name="bench")
app.add_typer(vectors_app, name="vectors")
