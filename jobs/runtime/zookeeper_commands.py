"""Commands that work through ZooKeeper, and what to use instead on a cluster that has none.

A KRaft cluster has no /controller_epoch to fence a writer with, and no znode versions to write under. Each of these
commands is refused there before it reads or stores anything, and no command suggests one of them.
"""

from collections.abc import Mapping
from typing import Final

_OWN_CONTROLLER: Final = (
    "the KRaft cluster's own controller repairs partitions; use `surveyor plan recover` for elections that it does not "
    "make"
)

INSTEAD: Final[Mapping[str, str]] = {"control": _OWN_CONTROLLER, "reconcile": _OWN_CONTROLLER}
"""Alternatives to a command, by its name."""
