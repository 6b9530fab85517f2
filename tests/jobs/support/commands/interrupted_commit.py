"""A program for `python -c`: a command that a signal interrupts between two batches of its commit."""

from typing import Final

_PROGRAM: Final = """\
import os, signal
from jobs import cli
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.runtime.pace import Pace
send, sent = Controllership.commit, []
def interrupted(control, multi):
    sent.append(multi)
    if len(sent) == {multis}:
        os.kill(os.getpid(), signal.{signal_name})
    return send(control, multi)
Controllership.commit = interrupted
cli.main(Pace(resignation=0.0, batch_changes={batch_changes}))
"""


def interrupted_program(signal_name: str, *, batch_changes: int, multis: int) -> str:
    """Return the program: the signal comes with that multi."""
    return _PROGRAM.format(signal_name=signal_name, batch_changes=batch_changes, multis=multis)
