"""The command line, one file per command. A user's mistake prints one line and exits with 2; a traceback is a bug."""

import os
import sys
from typing import Any

import typer

from qkv.base.errors import QkvError

# The class above BadParameter: an option or argument that the command line does not take.
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]


def main() -> None:
    """Run the command in sys.argv."""
    # How long an OpenMP thread spins before it sleeps while it waits for another; must be set before torch is imported. The
    # default spins so long that a busy machine slows to a crawl; sleeping at once costs too much between small products.
    # Measured on two cores, small model, target tokens/s: default 12,700, passive 10,500, this 18,600; beside another program
    # 3,400, 9,800 and 16,400.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    from qkv.cli.app import app
    from qkv.cli.completion import VARIABLE
    from qkv.cli.lines import printed_warnings

    if VARIABLE in os.environ:
        from typer.completion import completion_init

        completion_init()
    try:
        with printed_warnings():
            sys.exit(app(sys.argv[1:], prog_name="qkv", standalone_mode=False) or 0)
    except QkvError as error:
        print(f"qkv: {error}", file=sys.stderr)
        sys.exit(2)
    except USAGE_ERROR as error:
        usage: Any = error
        message = " ".join(usage.format_message().split())
        if message:  # empty where the help was printed instead
            print(f"qkv: {message} (see {usage.ctx.command_path if usage.ctx else 'qkv'} --help)", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has exited, as `head` does; that is no error.
        sys.stderr.close()
        sys.exit(141)
