"""Entry point of the command `surveyor`: signal handlers are installed before any slow import."""

import atexit
import os


def main() -> None:
    """Run the command line."""
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
