"""qkv serve RUN...: trained runs as a service."""

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.base.errors import ConfigError, QkvWarning

if TYPE_CHECKING:
    from qkv.serving.service_config import ServiceConfig


def serve_command(
    runs: Annotated[
        list[str] | None, typer.Argument(help="Folders of runs, exports or word vectors; NAME=FOLDER names one.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML file with any of these options; SIGHUP reads it again.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on (127.0.0.1); 0.0.0.0 for all of this machine's.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on (8000); 0 for any free one.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=256, help="Processes that serve (1); they share the port, limits and weights.")
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(help="Host name that requests may use beside localhost; by default any, or with 127.0.0.1 none."),
    ] = None,
    origin: Annotated[
        list[str] | None, typer.Option(help="Web origin whose pages may send requests (CORS), such as https://a.org; * for all.")
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="Address or network of a proxy whose X-Forwarded-For names the client."),
    ] = None,
    keys: Annotated[
        Path | None, typer.Option(help="File of API keys: each line has a name, a digest and requests a minute.")
    ] = None,
    admin_keys: Annotated[
        Path | None, typer.Option(help="File of keys for /admin, which adds, replaces and removes models.")
    ] = None,
    model_root: Annotated[Path | None, typer.Option(help="Folder from which /admin may add models.")] = None,
    new_key: Annotated[
        str | None, typer.Option(metavar="NAME", help="Make a key, print it and its line for a file of keys, and exit.")
    ] = None,
    rate: Annotated[
        int | None, typer.Option(min=1, help="Limit in requests a minute, for each key, or each address without keys.")
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Any limit, such as queue=64 or time_limit=30.")] = None,
    log_format: Annotated[str | None, typer.Option(help="Log lines as text (the default) or json.")] = None,
    device: Annotated[str | None, typer.Option(help="auto (the default), cpu, cuda or cuda:N.")] = None,
    engine: Annotated[str | None, typer.Option(help="Of the translators: own, ctranslate2 (fast on a CPU) or onnx.")] = None,
    precision: Annotated[str | None, typer.Option(help="With --engine ctranslate2: float32, int8 or bf16.")] = None,
    adapter: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FOLDER", help="Adapter of a served run, which requests name as a model of its own."),
    ] = None,
    languages: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=en,de", help="Languages of a served translator, where its run does not name them."),
    ] = None,
) -> None:
    """Serve models over HTTP: LibreTranslate's and OpenAI's APIs, qkv's own, and a web page."""
    if new_key is not None:
        _print_new_key(new_key)
        return
    from qkv.base.config import with_settings
    from qkv.serving.service_config import name_and_languages

    options = {
        "models": _named_folders(runs or []),
        "adapters": _named_folders(adapter or []),
        "languages": dict(map(name_and_languages, languages or [])),
        "host": host,
        "port": port,
        "workers": workers,
        "names": _parsed("--name", name),
        "origins": _parsed("--origin", origin),
        "trusted_proxies": _parsed("--trusted-proxy", trusted_proxy),
        "keys": keys and str(keys),
        "admin_keys": admin_keys and str(admin_keys),
        "model_root": model_root and str(model_root),
        "rate": rate,
        "limits": with_settings({}, settings or []),
        "log_format": log_format,
        "device": device,
        "engine": engine,
        "precision": precision,
    }
    _serve(config, options)


def _parsed(option: str, given: list[str] | None) -> tuple[str, ...]:
    """Return the values of an option in the form in which requests are compared with them."""
    from qkv.serving.settings import parse_host_name, parse_network, parse_origin

    parsers = {"--name": parse_host_name, "--origin": parse_origin, "--trusted-proxy": parse_network}
    parser, found = parsers[option], []
    for value in given or ():
        try:
            found.append(parser(value))
        except ValueError as error:
            raise ConfigError(f"{option} {value}: {error}") from None
    return tuple(found)


def _warn_if_open(config: "ServiceConfig") -> None:
    """Warn of a service that everybody may use who can reach this machine."""
    from qkv.serving.service_config import LOOPBACK

    if config.keys or config.host in LOOPBACK:
        return
    how, fix = "", "give --keys FILE"
    if not config.names:
        how, fix = " under any name, also web pages in a visitor's browser", f"{fix}, and --name NAME for each name that it has"
    message = f"--host {config.host} without keys: everybody who can reach this machine may use the service{how}; {fix}"
    warnings.warn(message, QkvWarning, stacklevel=2)


def _serve(file: Path | None, options: dict[str, Any]) -> None:
    if not hasattr(os, "fork"):
        raise ConfigError("qkv serve starts its workers by fork, which Windows lacks; run it under WSL 2 or in a container")
    try:
        from qkv.serving.logs import set_up_logging
        from qkv.serving.server import bind
        from qkv.serving.service_config import read_config
        from qkv.serving.supervisor import supervise
    except ImportError as error:
        raise ConfigError(f"serving needs packages that are not installed ({error}); pip install 'qkv[serve]'") from None

    config = read_config(file, options)
    config.settings()  # a mistake is found before models are loaded
    with bind(config.host, config.port) as listening:
        _warn_if_open(config)
        set_up_logging(config.log_format)
        supervise(config, lambda: read_config(file, options), listening)


def _named_folders(given: list[str]) -> dict[str, str]:
    """Return the folders by name; each is named after its folder, or by the NAME of `NAME=FOLDER`."""
    from qkv.serving.service_config import name_and_folder

    found: dict[str, str] = {}
    for name, folder in map(name_and_folder, given):
        if name in found:
            raise ConfigError(f"two runs are called {name!r}; name one of them otherwise, as NAME=FOLDER")
        found[name] = str(folder)
    return found


def _print_new_key(name: str) -> None:
    from qkv.serving.authentication import digest, new_key

    if len(name.split()) != 1 or "#" in name:
        raise ConfigError(f"the name {name!r} must be one word, without #")
    key = new_key()
    print(f"The key, which is shown only now: {key}", file=sys.stderr)
    print(f"{name} {digest(key)}")
