"""The command line: one file per verb. A mistake prints one line and exits 2; a traceback is a bug."""

import sys

from qkv.base.errors import QkvError


def main() -> None:
    """Run the command that was typed."""
    from qkv.cli.app import app

    try:
        app()
    except QkvError as error:
        print(f"qkv: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does; that is no mistake.
        sys.stderr.close()
        sys.exit(141)
