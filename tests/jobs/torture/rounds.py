"""One round: what is drawn from the seed and the round's number, how it is lived through, and what was wrong."""

import random
import signal
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Lock, Thread
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from tests.jobs.support.kafka.real_cluster import eventually
from tests.jobs.torture.arena import BROKERS, EARLY, NEWEST, OURS, Arena, Run
from tests.jobs.torture.faults import AT_BROKERS, AT_BROKERS_WITH_ZOOKEEPER, AT_COMMITTERS, AT_ZOOKEEPER, FAULTS
from tests.jobs.torture.history import History
from tests.jobs.torture.invariants import unaccounted, unaccounted_requests, unsettled
from tests.jobs.torture.steps import ADMIN, BATCH, CHURNED, CONTROL, COPYING, KINDS, Step, Steps
from tests.jobs.torture.traffic import MOVED, ORDERS, PAYMENTS, Traffic, flowing

REPLICAS: Final = {ORDERS: (6, 3), MOVED: (4, 2), PAYMENTS: (3, 3), f"{CHURNED}first": (3, 3), f"{CHURNED}next": (3, 3)}
SETTLED: Final = 240.0
"""Seconds after which all must be well again."""

IN_ONE_ARENA: Final = 6
"""Rounds that one arena lives through: what is written in them is read again after each."""

_MODES: Final = {EARLY: (BATCH, BATCH, BATCH, ADMIN, ADMIN, CONTROL), NEWEST: (BATCH, ADMIN)}
_OFFICE: Final = 240.0


@dataclass(frozen=True, slots=True)
class Hit:
    """A fault, at a target, so many seconds after a step began, for so long."""

    fault: str
    target: int
    after: float
    lasts: float


@dataclass(frozen=True, slots=True)
class Drawn:
    """All that chance decides of a round."""

    protocol: str
    """The same for all rounds that one arena may live through."""
    mode: str
    steps: tuple[tuple[Step, tuple[Hit, ...]], ...]


def draw(seed: int, number: int) -> Drawn:
    """The same for the same seed and number, whatever was drawn before."""
    chance = random.Random(f"{seed}/{number}")  # noqa: S311 - any will do
    protocol = random.Random(f"{seed}/{number // IN_ONE_ARENA}").choice((EARLY, NEWEST))  # noqa: S311 - any will do
    mode = chance.choice(_MODES[protocol])
    steps = []
    for _ in range(chance.randint(2, 3)):
        step = Step(chance.choice(KINDS[mode]), chance.randrange(10_000), chance.random() < 0.25)
        at_brokers = AT_BROKERS if step.kind not in COPYING else AT_BROKERS_WITH_ZOOKEEPER
        families = [AT_COMMITTERS, chance.choice([at_brokers, at_brokers, AT_ZOOKEEPER])]
        hits = [
            Hit(chance.choice(sorted(family)), chance.choice(BROKERS), chance.uniform(0.5, 3), chance.uniform(3, 30))
            for family in chance.sample(families, chance.choice([1, 1, 2]))
        ]
        steps.append((step, tuple(hits)))
    return Drawn(protocol, mode, tuple(steps))


class Faults:
    """Faults that come and go beside a round; of brokers, and of ZooKeeper's servers, one at a time."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.wrong: list[str] = []
        self._threads: list[Thread] = []
        self._turns: dict[str, Lock] = defaultdict(Lock)

    def schedule(self, hits: tuple[Hit, ...]) -> None:
        for hit in hits:
            self._threads.append(Thread(target=self._live, args=(hit,)))
            self._threads[-1].start()

    def lifted(self) -> None:
        """Wait until nothing is wrong with anybody any more."""
        for thread in self._threads:
            thread.join()

    def _live(self, hit: Hit) -> None:
        time.sleep(hit.after)
        family = "brokers" if hit.fault in AT_BROKERS else "zookeeper" if hit.fault in AT_ZOOKEEPER else hit.fault
        try:
            with self._turns[family], FAULTS[hit.fault](self.arena, hit.target):
                time.sleep(hit.lasts)
        except Exception as error:  # noqa: BLE001 - told with the rest
            self.wrong.append(f"{hit} could not be lived through: {error!r}")


def prepare(arena: Arena, client: KazooClient) -> None:
    """Create the topics that are written to."""
    admin = AdminClient({"bootstrap.servers": arena.bootstrap})
    new = [
        NewTopic(name, partitions, replicas, config={"min.insync.replicas": str(replicas - 1)})
        for name, (partitions, replicas) in REPLICAS.items()
    ]
    for future in admin.create_topics(new).values():
        future.result()
    assert eventually(lambda: not unsettled(arena, client), 60), unsettled(arena, client)


def live_through(arena: Arena, client: KazooClient, traffic: Traffic, drawn: Drawn) -> tuple[list[str], list[str]]:
    """One round; what is wrong, and what each step came to."""
    steps, faults = Steps(arena, client, drawn.mode), Faults(arena)
    killed_at: list[float] = []
    with ExitStack() as stack:
        stack.callback(faults.lifted)
        resident = _in_office(arena, client) if drawn.mode == CONTROL else None
        for step, hits in drawn.steps:
            if step.kind in COPYING:
                faults.lifted()
            runs = steps.begin(step)
            faults.schedule(hits)
            steps.end(step, runs)
    if resident is not None:
        _resign(resident, steps)
        if resident.process.pid in arena.killed:
            killed_at.append(time.time())
    if not flowing(traffic, eventually, SETTLED):
        steps.wrong.append(f"nothing is acknowledged any more: {traffic.failed}")
    steps.finish()
    eventually(lambda: not unsettled(arena, client), SETTLED)
    history = History.of(arena.history())
    wrong = [*steps.wrong, *faults.wrong, *unsettled(arena, client), *history.wrong(), *traffic.wrong()]
    ours = sum(each.session in history.ours for each in history.written)
    taken = f"{len(history.taken)} requests taken away by it"
    figures = f"{len(traffic.acked)} records acknowledged, {len(history.written)} states written, {ours} by Surveyor"
    for look in (unaccounted, unaccounted_requests):
        wrong += look(history, arena.lake, killed_at)
    return wrong, [*steps.told, f"{figures}, {taken}"]


def _in_office(arena: Arena, client: KazooClient) -> Run:
    """`surveyor control`, as soon as it is the controller."""
    run = arena.start("control", "--apply", "--yes")

    def holds() -> bool:
        return run.process.poll() is not None or (
            client.exists("/controller") is not None and str(OURS[0]).encode() in client.get("/controller")[0]
        )

    eventually(holds, _OFFICE)
    return run


def _resign(resident: Run, steps: Steps) -> None:
    """Ctrl-C, unless it has ended already: killed, fenced, or without its session."""
    if resident.process.poll() is None:
        resident.process.send_signal(signal.SIGINT)
    code = resident.process.wait(120)
    steps.told.append(f"control: {code}")
    if code not in {0, 1, 20, 22, 23, 130, -9} or "Traceback" in resident.output:
        steps.wrong.append(f"control ended with {code}: {resident.output}")
