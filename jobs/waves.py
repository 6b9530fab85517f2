"""Waves of a plan in admin mode: those of one are asked for together, the next when the one before has come about.

A later change of a partition starts where an earlier one ends, so it can be judged only then; in batch mode a plan has
one wave.
"""

import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from kazoo.client import KazooClient

from jobs.adapters.lake import Row
from jobs.adapters.zookeeper import connected, sync
from jobs.ledger import Ledger, Verdict
from jobs.premises import judge_for_admin
from jobs.settings import Settings
from schemas.names import Outcome

PATIENCE: Final = 15.0
"""Seconds for the wave before to be seen in ZooKeeper: Kafka's controller answers once it has written an order."""


def by_wave(changes: Sequence[Row]) -> Iterator[list[Row]]:
    """The changes of each wave, in order."""
    for _, wave in groupby(sorted(changes, key=itemgetter("wave")), key=itemgetter("wave")):
        yield list(wave)


def judge_waves(client: KazooClient, changes: Sequence[Row]) -> tuple[list[Row], list[Verdict]]:
    """Tell what is due; a change whose partition has one due in an earlier wave is due after it, unjudged."""
    due: list[Row] = []
    verdicts: list[Verdict] = []
    for wave in by_wave(changes):
        earlier = {_partition(change) for change in due}
        found, judged = judge_for_admin(client, [change for change in wave if _partition(change) not in earlier])
        due += found + [change for change in wave if _partition(change) in earlier]
        verdicts += judged
    return due, verdicts


def still_due(settings: Settings, ledger: Ledger, wave: Sequence[Row]) -> list[Row]:
    """Wait until the waves before are done, and return what of this one is due; the ledger is told of the rest."""
    refused = {_partition(v.change) for v in ledger.verdicts if v.outcome is not Outcome.APPLIED}
    ledger.judge(
        Verdict(change, Outcome.SKIPPED, f"its change before wave {change['wave']} was not applied")
        for change in wave
        if _partition(change) in refused
    )
    mine = [change for change in wave if _partition(change) not in refused]
    deadline = time.monotonic() + PATIENCE
    with connected(settings.zookeeper) as client:
        while True:
            sync(client)
            due, verdicts = judge_for_admin(client, mine)
            stale = any(verdict.outcome is Outcome.STALE for verdict in verdicts)
            if not stale or time.monotonic() > deadline:
                ledger.judge(verdicts)
                return due
            time.sleep(0.2)


def _partition(change: Row) -> tuple[str, int]:
    return change["topic"], change["partition"]
