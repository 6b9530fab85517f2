"""Options of `surveyor control`."""

from dataclasses import dataclass

from jobs.adapters.request_server.listen_config import ListenConfig


@dataclass(frozen=True, slots=True)
class ControlOptions:
    """Options of `surveyor control`."""

    apply: bool
    until_quiet: bool
    allow_unclean: bool
    allow_silent: frozenset[int]
    standby: bool = False
    replace: bool = False
    metrics: tuple[str, int] | None = None
    """Where metrics and health are served."""
    listen: ListenConfig | None = None
    """Where brokers' requests are received; None if they are not served."""
