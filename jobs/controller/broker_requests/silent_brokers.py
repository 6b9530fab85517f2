"""Logs registered brokers that do not respond; without it only the metrics would show them."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from jobs.runtime.console import LogLine

SILENT_SECONDS: Final = 30.0
"""Seconds without a response after which a broker is reported; the session of a dead broker has ended then (18 s)."""


@dataclass(slots=True)
class SilentBrokers:
    """The brokers that were reported, until they respond or are no longer registered."""

    log_line: LogLine
    _reported: set[int] = field(default_factory=set)

    def report(self, ages: Mapping[int, float]) -> None:
        """Log which brokers have begun or ceased to be silent.

        `ages`: by registered broker, the seconds for which its oldest request has waited.
        """
        silent = {broker for broker, age in ages.items() if age >= SILENT_SECONDS}
        for broker in sorted(silent - self._reported):
            self.log_line(
                f"surveyor: warning: broker {broker} is registered and has not responded for {ages[broker]:.0f} s: "
                "requests to it wait. Make sure that it runs",
                logging.WARNING,
            )
        for broker in sorted((self._reported - silent) & ages.keys()):
            self.log_line(f"  broker {broker} responds again")
        self._reported = silent
