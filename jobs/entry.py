"""Where the command `surveyor` begins: signals are handled before anything that takes time is imported."""

from jobs.basics.interrupts import guard


def main() -> None:
    """Run the command line."""
    guard()
    from jobs.cli import main as run_command_line  # noqa: PLC0415 - a second or two, in which Ctrl-C is heard already

    run_command_line()


if __name__ == "__main__":
    main()
