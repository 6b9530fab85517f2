"""Commands that work through ZooKeeper, and what to use instead on a cluster that has none.

A KRaft cluster has no /controller_epoch to fence a writer with, and no znode versions to write under. Each of these
commands is refused there before it reads or stores anything, and no command suggests one of them.
"""

from collections.abc import Mapping
from typing import Final

_MOVES: Final = (
    "`surveyor export PLAN` writes its moves for kafka-reassign-partitions; kafka-leader-election, kafka-configs and "
    "kafka-topics change leaders, configs and topics"
)
_OWN_CONTROLLER: Final = (
    "the KRaft cluster's own controller repairs partitions; use kafka-leader-election for elections that it does not "
    "make"
)

INSTEAD: Final[Mapping[str, str]] = {
    "cancel": "use kafka-reassign-partitions --cancel, which also removes throttles",
    "commit": _MOVES,
    "control": _OWN_CONTROLLER,
    "reconcile": _OWN_CONTROLLER,
    "rollback": "`surveyor export PLAN --inverse` writes the way back for kafka-reassign-partitions",
    "verify": "`surveyor status` counts running moves, and kafka-reassign-partitions --verify shows those of a file",
}
"""What to use instead of a command, by its name."""
