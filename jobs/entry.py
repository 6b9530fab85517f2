"""Entry point of the command `surveyor`: signal handlers are installed before any slow import."""

import atexit
import gc
import os
from typing import Final

OBJECTS_BEFORE_COLLECTION: Final = 20_000
"""Objects that are made before garbage is collected; Python's 700 means 240 collections while modules are imported."""


def main() -> None:
    """Run the command line."""
    gc.set_threshold(OBJECTS_BEFORE_COLLECTION)
    try:
        from jobs.core.signals import ignore_signals, install_handlers  # noqa: PLC0415 - takes 50 ms, during which Python still handles Ctrl-C

        install_handlers()
        # registered first, so it runs last: Python then resets all handlers, and a signal would hide the exit code
        atexit.register(ignore_signals)
    except KeyboardInterrupt:
        os.write(2, b"surveyor: interrupted; nothing was written to the cluster\n")
        os._exit(130)
    from jobs.cli import main as run_command_line  # noqa: PLC0415 - slow, so imported after the handlers are installed

    run_command_line()


if __name__ == "__main__":
    main()
