"""qkv serve RUN...: trained runs as a service."""

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qkv.base.errors import ConfigError
from qkv.cli.lines import warnings_as_lines

if TYPE_CHECKING:
    from qkv.serving.settings import Settings

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def serve_command(
    runs: Annotated[
        list[str] | None, typer.Argument(help="Folders of runs, exports or word vectors; NAME=FOLDER names one.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 for all of this machine's.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 for any that is free.")] = 8000,
    host_name: Annotated[
        list[str] | None, typer.Option(help="A name to be asked under; without it any, or on 127.0.0.1 this machine's own.")
    ] = None,
    origin: Annotated[
        list[str] | None, typer.Option(help="A web origin whose pages may ask (CORS), such as https://a.org.")
    ] = None,
    keys: Annotated[
        Path | None, typer.Option(help="A file of API keys: a line for each with name, digest, requests a minute.")
    ] = None,
    new_key: Annotated[
        str | None, typer.Option(metavar="NAME", help="Make a key, print it and its line for --keys, and end.")
    ] = None,
    rate: Annotated[
        int | None, typer.Option(min=1, help="Requests a minute, for each key, or each address without keys.")
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Any limit, such as queue=64 or time_limit=30.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    engine: Annotated[str | None, typer.Option(help="For translators: own, ctranslate2 (fast on a CPU) or onnx.")] = None,
    precision: Annotated[str | None, typer.Option(help="With --engine ctranslate2: float32, int8 or bf16.")] = None,
) -> None:
    """Serve models over HTTP: LibreTranslate's and OpenAI's APIs, our own, and a page."""
    if new_key is not None:
        _make_key(new_key)
        return
    if not runs:
        raise ConfigError("no run to serve was named; give the folder of one, or of several")
    names = host_name or (LOOPBACK if host in LOOPBACK else ())
    limits = _limits(settings or [], keys, rate=rate, origins=tuple(origin or ()), hosts=tuple(map(str.lower, names)))
    with warnings_as_lines():
        _serve(runs, limits, host, port, device, engine, precision)


def _limits(given: list[str], keys: Path | None, **options: object) -> "Settings":
    from qkv.base.config import parse, with_settings
    from qkv.serving.keys import read_keys
    from qkv.serving.settings import Settings

    options["keys"] = read_keys(keys) if keys is not None else ()
    told = {name: value for name, value in options.items() if value is not None}
    return parse(Settings, {**told, **with_settings({}, given)}, "--set")


def _serve(
    runs: list[str], limits: "Settings", host: str, port: int, device: str, engine: str | None, precision: str | None
) -> None:
    try:
        from qkv.serving.http import make_app
        from qkv.serving.models import open_models
        from qkv.serving.server import BACKLOG, bind, serve
    except ImportError as error:
        raise ConfigError(f"serving needs packages that are not installed ({error}); pip install fastapi uvicorn") from None

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    with bind(host, port) as listening:
        models = open_models(runs, device, engine, precision)
        for model in models.all:
            what = ", ".join(model.can) or "nothing that can be asked over HTTP"
            print(f"{model.name}: {model.kind}, {model.parameters or 0:,} parameters, can {what}", file=sys.stderr)
        app = make_app(models, limits)
        listening.listen(BACKLOG)  # not before, so that nobody waits for models to be loaded
        where = f"[{host}]" if ":" in host else host
        print(f"qkv listens on http://{where}:{listening.getsockname()[1]}", file=sys.stderr, flush=True)
        serve(app, listening)


def _make_key(name: str) -> None:
    from qkv.serving.keys import digest, new_key

    if len(name.split()) != 1 or "#" in name:
        raise ConfigError(f"the name {name!r} must be one word, without #")
    key = new_key()
    print(f"The key, which is shown only now: {key}", file=sys.stderr)
    print(f"{name} {digest(key)}")
