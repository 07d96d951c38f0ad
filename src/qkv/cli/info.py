"""qkv recipes and qkv info: list recipes, and describe this machine or a run."""

from pathlib import Path
from typing import Annotated

import typer

from qkv.cli.completion import complete_recipe


def recipes_command(
    name: Annotated[str | None, typer.Argument(autocompletion=complete_recipe, help="Print this recipe.")] = None,
) -> None:
    """List qkv's recipes, or print one to save and edit."""
    from qkv.base.errors import ConfigError
    from qkv.recipes import RECIPES, recipe_names

    if name is None:
        for known in recipe_names():
            about = (RECIPES / f"{known}.yaml").read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
            print(f"{known:20} {about}")
    elif name in recipe_names():
        print((RECIPES / f"{name}.yaml").read_text(encoding="utf-8"), end="")
    else:
        raise ConfigError(f"no recipe {name!r}; known are {', '.join(recipe_names())}")


def info_command(
    run: Annotated[Path | None, typer.Argument(metavar="[RUN]", help="Describe this run instead of the machine.")] = None,
) -> None:
    """Print versions, device, precision and cache folder, for bug reports; or what a run is, and its snapshots."""
    if run is not None:
        from qkv.folder.description import describe_run

        print("\n".join(describe_run(run)))
        return
    import platform
    from importlib.metadata import version

    from qkv import __version__
    from qkv.base.hardware import choose_device, choose_precision, describe_device
    from qkv.base.urls import is_url
    from qkv.data.cache import cache_folder, cache_root

    device = choose_device()
    print(f"qkv {__version__}, Python {platform.python_version()}, torch {version('torch')}")
    print(f"device: {describe_device(device)} ({device.type}), {str(choose_precision('auto', device)).removeprefix('torch.')}")
    copies = f", with copies in {cache_folder()}" if is_url(cache_root()) else ""
    print(f"cache: {cache_root()}{copies}")
