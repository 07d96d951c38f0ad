"""qkv serve RUN...: trained runs as a service."""

import logging
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.base.errors import ConfigError, QkvWarning

if TYPE_CHECKING:
    from qkv.serving.settings import ServiceSettings

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def serve_command(
    runs: Annotated[
        list[str] | None, typer.Argument(help="Folders of runs, exports or word vectors; NAME=FOLDER names one.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all of this machine's.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free one.")] = 8000,
    name: Annotated[
        list[str] | None,
        typer.Option(help="Host name that requests may use beside localhost; by default any, or with 127.0.0.1 none."),
    ] = None,
    origin: Annotated[
        list[str] | None, typer.Option(help="Web origin whose pages may send requests (CORS), such as https://a.org; * for all.")
    ] = None,
    keys: Annotated[
        Path | None, typer.Option(help="File of API keys: each line has a name, a digest and requests a minute.")
    ] = None,
    new_key: Annotated[
        str | None, typer.Option(metavar="NAME", help="Make a key, print it and its line for --keys, and exit.")
    ] = None,
    rate: Annotated[
        int | None, typer.Option(min=1, help="Limit in requests a minute, for each key, or each address without keys.")
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Any limit, such as queue=64 or time_limit=30.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    engine: Annotated[str | None, typer.Option(help="Of the translators: own, ctranslate2 (fast on a CPU) or onnx.")] = None,
    precision: Annotated[str | None, typer.Option(help="With --engine ctranslate2: float32, int8 or bf16.")] = None,
    adapter: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FOLDER", help="Adapter of a served run, which requests name as a model of its own."),
    ] = None,
) -> None:
    """Serve models over HTTP: LibreTranslate's and OpenAI's APIs, qkv's own, and a web page."""
    if new_key is not None:
        _print_new_key(new_key)
        return
    if not runs:
        raise ConfigError("no run to serve was named; give the folder of one, or of several")
    names = (*LOOPBACK, *_parsed("--name", name)) if name or host in LOOPBACK else ()
    limits = _settings(settings or [], keys, rate=rate, origins=_parsed("--origin", origin), hosts=names)
    if host not in LOOPBACK:
        _warn_if_open(limits, host)
    models_to_load = {"runs": runs, "device": device, "engine": engine, "precision": precision, "adapters": adapter or ()}
    _serve(limits, host, port, models_to_load)


def _parsed(option: str, given: list[str] | None) -> tuple[str, ...]:
    """Return the values of --name or --origin in the form in which requests are compared with them."""
    from qkv.serving.settings import parse_host_name, parse_origin

    parser, found = {"--name": parse_host_name, "--origin": parse_origin}[option], []
    for value in given or ():
        try:
            found.append(parser(value))
        except ValueError as error:
            raise ConfigError(f"{option} {value}: {error}") from None
    return tuple(found)


def _warn_if_open(limits: "ServiceSettings", host: str) -> None:
    """Warn of a service that everybody may use who can reach this machine."""
    if limits.keys:
        return
    how, fix = "", "give --keys FILE"
    if not limits.hosts:
        how, fix = " under any name, also web pages in a visitor's browser", f"{fix}, and --name NAME for each name that it has"
    message = f"--host {host} without keys: everybody who can reach this machine may use the service{how}; {fix}"
    warnings.warn(message, QkvWarning, stacklevel=2)


def _settings(given: list[str], keys: Path | None, **options: object) -> "ServiceSettings":
    from qkv.base.config import parse, with_settings
    from qkv.serving.authentication import read_keys
    from qkv.serving.settings import ServiceSettings

    options["keys"] = read_keys(keys) if keys is not None else ()
    values = {name: value for name, value in options.items() if value is not None}
    return parse(ServiceSettings, {**values, **with_settings({}, given)}, "--set")


def _serve(limits: "ServiceSettings", host: str, port: int, models_to_load: dict[str, Any]) -> None:
    try:
        from qkv.serving.app import create_app
        from qkv.serving.registry import load_models
        from qkv.serving.server import BACKLOG, bind, serve
    except ImportError as error:
        raise ConfigError(f"serving needs packages that are not installed ({error}); pip install 'qkv[serve]'") from None

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    with bind(host, port) as listening:
        models = load_models(**models_to_load)
        for model in models.all:
            handler, abilities = model.handler, ", ".join(model.handler.abilities) or "do nothing over HTTP"
            size = "" if handler.parameters is None else f"{handler.parameters:,} parameters, "
            print(f"{model.name}: {handler.kind}, {size}can {abilities}", file=sys.stderr)
        app = create_app(models, limits)
        listening.listen(BACKLOG)  # not before, so that no client waits while models load
        where = f"[{host}]" if ":" in host else host
        print(f"qkv listens on http://{where}:{listening.getsockname()[1]}", file=sys.stderr, flush=True)
        serve(app, listening)


def _print_new_key(name: str) -> None:
    from qkv.serving.authentication import digest, new_key

    if len(name.split()) != 1 or "#" in name:
        raise ConfigError(f"the name {name!r} must be one word, without #")
    key = new_key()
    print(f"The key, which is shown only now: {key}", file=sys.stderr)
    print(f"{name} {digest(key)}")
