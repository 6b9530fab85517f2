"""A snapshot in one line, as people read it: what was found, who is in control, and what it took."""

from typing import Final

from jobs.runtime.console import Result
from schemas.names import NO_CONTROLLER

COUNTED: Final = ("brokers", "topics", "partitions", "quarantined")

UNCLEAR: Final = {NO_CONTROLLER: "no controller", None: "a controller not understood"}
"""What stands in place of a controller's id."""


def snapshot_line(cluster: str, result: Result) -> str:
    """Say in a line what was found.

    >>> counts = {"brokers": 3, "topics": 2, "partitions": 60, "quarantined": 0}
    >>> control = {"controller_id": -1, "controller_epoch": 7}
    >>> took = {"seconds": 5.04, "seconds_by_phase": {"read": 0.71, "write": 1.23}}
    >>> snapshot_line("east", {"snapshot_id": 4, **counts, **control, **took})
    'snapshot 4 of east: 3 brokers, 2 topics, 60 partitions, 0 quarantined; no controller, epoch 7; 5.0 s (read 0.7, \
write 1.2)'
    """
    counts = ", ".join(f"{result[name]} {name}" for name in COUNTED)
    return (
        f"snapshot {result['snapshot_id']} of {cluster}: {counts}; "
        f"{_controller(result['controller_id'])}, epoch {result['controller_epoch']}; "
        f"{result['seconds']:.1f} s ({_phases(result['seconds_by_phase'])})"
    )


def _controller(controller_id: int | None) -> str:
    """Name who is in control.

    >>> _controller(2), _controller(None)
    ('controller 2', 'a controller not understood')
    """
    return UNCLEAR.get(controller_id, f"controller {controller_id}")


def _phases(seconds: dict[str, float]) -> str:
    return ", ".join(f"{phase} {each:.1f}" for phase, each in seconds.items())
