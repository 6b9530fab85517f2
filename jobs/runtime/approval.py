"""Approval of writes: the question before a write, and the callback by which a command answers it on the terminal.

A service that prepares and writes within one session of the cluster takes a callback of type `Approve`. None approves
everything in advance, as `--yes` does. A service whose preparation is over before it writes has a function for each
step instead, and the command asks in between.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Review:
    """The changes about to be written, and the question that approves them."""

    question: str
    lines: Iterable[str] = ()
    """The changes that would be written; read only if they are shown."""
    warnings: Sequence[str] = ()
    """The warnings among `lines`, which are logged even if no question can be asked."""
    expected_word: str | None = None
    """The only answer that approves, for what cannot be undone; without it the question is one of yes or no."""
    notes: Sequence[str] = ()
    """Other lines that are logged even if no question can be asked."""
    unattended_refusal: str | None = None
    """Reason why nothing is written if no question can be asked; None if `--apply` is enough then."""


Approve = Callable[[Review], bool]
"""Returns whether the user approves; raises RefusedError for what is not written without a question."""


def warning_lines(warnings: Iterable[str]) -> list[str]:
    """Return warnings as lines below a title."""
    return [f"  warning: {warning}" for warning in warnings]
