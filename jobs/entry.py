"""Where the command `surveyor` begins: signals are handled before anything that takes time is imported."""

import atexit
import os


def main() -> None:
    """Run the command line."""
    try:
        from jobs.core.signals import ignore, install_handlers  # noqa: PLC0415 - takes 50 ms, in which Ctrl-C is Python's still

        install_handlers()
        # registered first, so called last: Python then takes every handler away, and a signal would hide the exit code
        atexit.register(ignore)
    except KeyboardInterrupt:
        os.write(2, b"surveyor: interrupted; nothing was written to the cluster\n")
        os._exit(130)
    from jobs.cli import main as run_command_line  # noqa: PLC0415 - takes longer, and Ctrl-C is handled already

    run_command_line()


if __name__ == "__main__":
    main()
