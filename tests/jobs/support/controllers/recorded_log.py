"""Lines that a resident controller logs, with their levels."""

import logging


class RecordedLog(list[str]):
    """The lines, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.warnings: list[str] = []
        """The lines of level warning."""

    def __call__(self, line: str, level: int = logging.INFO, /) -> None:
        self.append(line)
        if level >= logging.WARNING:
            self.warnings.append(line)
