"""The command `fedsol`, also as `python -m fedsol`. It imports little, so that Ctrl-C is heard early."""

import os
import signal


def main() -> None:
    """Run the `fedsol` command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _quit)
    from fedsol.cli.app import app

    app()


def _quit(*_: object) -> None:
    """End at once: no command has begun, so nothing is written."""
    os.write(2, b"interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()
