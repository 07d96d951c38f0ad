"""The command line: one file per verb. A mistake prints one line and exits 2; a traceback is a bug."""

import os
import sys
from typing import Any

import typer

from qkv.base.errors import QkvError

MISTYPED: type[Exception] = typer.BadParameter.__mro__[1]  # any option or argument that typer cannot use


def main() -> None:
    """Run the command that was typed."""
    # How long a thread spins before it sleeps while it waits for another; must be said before torch is imported. By default it
    # spins for so long that a busy machine brings it to a crawl; sleeping at once costs too much between small products.
    # Measured on two cores, small model, target tokens/s: default 12,700, passive 10,500, this 18,600; beside another program
    # 3,400, 9,800 and 16,400.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    from qkv.cli.app import app

    try:
        sys.exit(app(sys.argv[1:], prog_name="qkv", standalone_mode=False) or 0)
    except QkvError as error:
        print(f"qkv: {error}", file=sys.stderr)
        sys.exit(2)
    except MISTYPED as error:
        _explain(error)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does; that is no mistake.
        sys.stderr.close()
        sys.exit(141)


def _explain(mistake: Any) -> None:
    """One line on what was typed wrong, and where to look; nothing where help was shown instead."""
    message = " ".join(mistake.format_message().split())
    if message:
        print(f"qkv: {message} (see {mistake.ctx.command_path if mistake.ctx else 'qkv'} --help)", file=sys.stderr)
