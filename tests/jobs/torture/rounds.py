"""One round: drawn from the seed and the round's number, carried out, and checked."""

import random
import signal
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Lock, Thread
from typing import Final, Generic

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from tests.jobs.support.kafka.real_cluster import eventually
from tests.jobs.torture.faults import (
    AT_BROKERS,
    AT_BROKERS_WITH_ZOOKEEPER,
    AT_COMMITTERS,
    AT_LISTENER,
    AT_ZOOKEEPER,
    Fault,
)
from tests.jobs.torture.history import History
from tests.jobs.torture.invariants import unaudited_requests, unaudited_states, unhealthy, unsettled
from tests.jobs.torture.steps import ADMIN, BATCH, CHURNED, CONTROL, COPYING, KINDS, Step, Steps, ZooKeeperSteps
from tests.jobs.torture.torture_cluster import BROKERS, EARLY, NEWEST, SURVEYOR_IDS, C, Run, TortureCluster
from tests.jobs.torture.traffic import MOVED, ORDERS, PAYMENTS, Traffic, flowing

REPLICAS: Final = {ORDERS: (6, 3), MOVED: (4, 2), PAYMENTS: (3, 3), f"{CHURNED}first": (3, 3), f"{CHURNED}next": (3, 3)}
RECOVERY_SECONDS: Final = 240.0
"""Seconds after which everything must be healthy again."""

ROUNDS_PER_CLUSTER: Final = 6
"""Rounds in one cluster; after each round everything written so far is read again."""

_MODES: Final = {EARLY: (BATCH, BATCH, BATCH, ADMIN, ADMIN, CONTROL), NEWEST: (BATCH, ADMIN, CONTROL, CONTROL)}
_TAKE_OVER_SECONDS: Final = 240.0


@dataclass(frozen=True, slots=True)
class Injection:
    """A fault with its target, its start in seconds after a step began, and its duration."""

    fault: str
    target: int
    after: float
    lasts: float


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """Everything about a round that is decided at random."""

    protocol: str
    """The same for all rounds that may share a cluster."""
    mode: str
    steps: tuple[tuple[Step, tuple[Injection, ...]], ...]


def draw(seed: int, number: int) -> RoundPlan:
    """Draw a round; the result depends on the seed and the number only."""
    chance = random.Random(f"{seed}/{number}")  # noqa: S311 - any will do
    protocol = random.Random(f"{seed}/{number // ROUNDS_PER_CLUSTER}").choice((EARLY, NEWEST))  # noqa: S311 - any will do
    mode = chance.choice(_MODES[protocol])
    steps = []
    for _ in range(chance.randint(2, 3)):
        step = Step(chance.choice(KINDS[mode]), chance.randrange(10_000), chance.random() < 0.25)
        at_brokers = AT_BROKERS if step.kind not in COPYING else AT_BROKERS_WITH_ZOOKEEPER
        at_committers = AT_COMMITTERS | AT_LISTENER if (protocol, mode) == (NEWEST, CONTROL) else AT_COMMITTERS
        families = [at_committers, chance.choice([at_brokers, at_brokers, AT_ZOOKEEPER])]
        injections = [
            Injection(
                chance.choice(sorted(family)), chance.choice(BROKERS), chance.uniform(0.5, 3), chance.uniform(3, 30)
            )
            for family in chance.sample(families, chance.choice([1, 1, 2]))
        ]
        steps.append((step, tuple(injections)))
    return RoundPlan(protocol, mode, tuple(steps))


class Faults(Generic[C]):
    """Faults that are active concurrently with a round; those of one of the `families` one at a time."""

    def __init__(self, cluster: C, *families: Mapping[str, Fault[C]]) -> None:
        self.cluster = cluster
        self.families = families
        self.wrong: list[str] = []
        self._threads: list[Thread] = []
        self._turns: dict[int, Lock] = defaultdict(Lock)

    def schedule(self, injections: tuple[Injection, ...]) -> None:
        for injection in injections:
            self._threads.append(Thread(target=self._live, args=(injection,)))
            self._threads[-1].start()

    def lifted(self) -> None:
        """Wait until all faults are lifted."""
        for thread in self._threads:
            thread.join()

    def _live(self, injection: Injection) -> None:
        time.sleep(injection.after)
        ((family, fault),) = (
            (family, faults[injection.fault])
            for family, faults in enumerate(self.families)
            if injection.fault in faults
        )
        try:
            with self._turns[family], fault(self.cluster, injection.target):
                time.sleep(injection.lasts)
        except Exception as error:  # noqa: BLE001 - reported with the rest
            self.wrong.append(f"{injection} failed: {error!r}")


def alone(faults: Mapping[str, Fault[C]]) -> list[dict[str, Fault[C]]]:
    """A family for each fault, so that others happen at the same time."""
    return [{name: fault} for name, fault in faults.items()]


def prepare(cluster: TortureCluster, client: KazooClient) -> None:
    """Create the topics that the traffic writes to, once all brokers know a controller."""
    assert eventually(lambda: all(_knows_controller(broker.address) for broker in cluster.brokers.values()))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = [
        NewTopic(name, partitions, replicas, config={"min.insync.replicas": str(replicas - 1)})
        for name, (partitions, replicas) in REPLICAS.items()
    ]
    for future in admin.create_topics(new).values():
        future.result()
    assert eventually(lambda: not unsettled(cluster, client)), unsettled(cluster, client)


def _knows_controller(address: str) -> bool:
    """Whether a broker names a controller; a client that gets none at first may wait forever for one."""
    metadata = AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=10)
    return metadata.controller_id in BROKERS


def run_round(
    cluster: TortureCluster, client: KazooClient, traffic: Traffic, drawn: RoundPlan
) -> tuple[list[str], list[str]]:
    """Run one round; return the violations, and the result of each step."""
    steps = ZooKeeperSteps(cluster=cluster, client=client, mode=drawn.mode)
    faults = Faults(cluster, AT_BROKERS, AT_ZOOKEEPER, *alone(AT_COMMITTERS | AT_LISTENER))
    killed_at: list[float] = []
    with ExitStack() as stack:
        stack.callback(faults.lifted)
        resident = _start_resident_controller(cluster, client) if drawn.mode == CONTROL else None
        for step, injections in drawn.steps:
            if step.kind in COPYING:
                faults.lifted()
            runs = steps.begin(step)
            faults.schedule(injections)
            steps.end(step, runs)
    if resident is not None:
        _await_health(resident, client, steps)
        _resign(resident, steps)
        if resident.process.pid in cluster.killed:
            killed_at.append(time.time())
    if not flowing(traffic, eventually, RECOVERY_SECONDS):
        steps.wrong.append(f"nothing is acknowledged any more: {traffic.failed}")
    steps.finish()
    eventually(lambda: not unsettled(cluster, client), RECOVERY_SECONDS)
    history = History.of(cluster.history(), cluster.listening_sessions)
    wrong = [*steps.wrong, *faults.wrong, *unsettled(cluster, client), *history.wrong(), *traffic.wrong()]
    ours = sum(transaction.session in history.ours for transaction in history.written)
    taken = f"{len(history.taken)} requests taken away by it"
    figures = f"{len(traffic.acked)} records acknowledged, {len(history.written)} states written, {ours} by Surveyor"
    figures += f", {sum(map(history.is_isr_change, history.written))} of them as leaders proposed"
    for look in (unaudited_states, unaudited_requests):
        wrong += look(history, cluster.warehouse, killed_at)
    return wrong, [*steps.summary, f"{figures}, {taken}"]


def _start_resident_controller(cluster: TortureCluster, client: KazooClient) -> Run:
    """Start `surveyor control` and wait until it is the controller."""
    run = cluster.start("control", "--apply", "--yes", *cluster.listen_options)

    def holds() -> bool:
        return run.process.poll() is not None or (
            client.exists("/controller") is not None and str(SURVEYOR_IDS[0]).encode() in client.get("/controller")[0]
        )

    eventually(holds, _TAKE_OVER_SECONDS)
    if cluster.listen_options and run.process.poll() is None:
        cluster.listening_sessions.add(client.get("/controller")[1].ephemeralOwner)
    return run


def _await_health(resident: Run, client: KazooClient, steps: Steps) -> None:
    """Wait until all leaders lead and all ISRs are full under this controller, unless its process has ended."""

    def is_healthy() -> bool:
        return resident.process.poll() is not None or not unhealthy(client)

    if not eventually(is_healthy, RECOVERY_SECONDS):
        steps.wrong += [f"while Surveyor is the controller: {reason}" for reason in unhealthy(client)]
        steps.wrong.append(resident.output)


def _resign(resident: Run, steps: Steps) -> None:
    """Send Ctrl-C unless the process has ended already: killed, fenced, or without its session."""
    if resident.process.poll() is None:
        resident.process.send_signal(signal.SIGINT)
    code = resident.process.wait(120)
    steps.summary.append(f"control: {code}")
    if code not in {0, 1, 20, 22, 23, 130, -9} or "Traceback" in resident.output:
        steps.wrong.append(f"control ended with {code}: {resident.output}")
