"""The command line: one file per verb. A mistake prints one line and exits 2; a traceback is a bug."""

import os
import sys
from typing import Any

import typer

from qkv.base.errors import QkvError

MISTYPED: type[Exception] = typer.BadParameter.__mro__[1]  # any option or argument that typer cannot use


def main() -> None:
    """Run the command that was typed."""
    # Threads that sleep instead of spinning while they wait cost nothing on an idle machine (measured: 4,050 against 3,800
    # tokens/s) and save half the speed on a busy one (2,700 against 1,800). Must be said before torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
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
