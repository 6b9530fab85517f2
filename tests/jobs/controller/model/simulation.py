"""Many simulated clusters in one ZooKeeper, and the real controller, whose every cycle decides for all of them.

A decision by Spark takes about a second for one partition as for a thousand. So many small clusters run side by side,
each with its own brokers, topics and scenario. `ResidentController.run` itself runs the cycles: between two cycles it
asks whether it was interrupted, and there the simulation takes its turn. A fault of the controller concerns all
clusters: it crashes after a write or after sending some requests, connections and sessions are lost, another controller
takes over.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from kazoo.protocol.serialization import CheckVersion, Create, Delete, SetData

from jobs.adapters.brokers.channel_manager import ChannelManager
from jobs.adapters.brokers.control_encoding import ControlBatch
from jobs.adapters.brokers.responses import BrokerResponse
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.controllership import SessionLostError, take_over
from jobs.controller.broker_requests.retries import MAX_DELAY_SECONDS
from jobs.controller.controller import ResidentController
from jobs.controller.decisions import DecisionEngine, Decisions
from jobs.controller.write_behind import AuditEntry, CycleRecord, EndedDrains, WriteBehindLog
from jobs.core.errors import FencedError
from schemas.rows import Snapshot
from schemas.znodes import encode_controller
from tests.jobs.controller.model.clusters import SimulatedCluster
from tests.jobs.controller.model.invariants import violations
from tests.jobs.controller.model.network import MAX_BROKERS, Network, cluster_of_broker, cluster_of_topic
from tests.jobs.controller.model.scenarios import Point, Scenario
from tests.jobs.controller.model.zookeeper import Interception, Session, Tree, Write
from tests.jobs.support.zookeeper.fenced import OURS
from tests.jobs.support.zookeeper.kafka_tree import PATHS

CONTROLLER_FAULTS: Final = (
    "crash",
    "crash_before_sending",
    "partly_sent",
    "lost",
    "lost_done",
    "fenced",
    "expired",
    "read_lost",
)
"""Faults of the controller, at the n-th occasion in a round:

- `crash`: it crashes after a multi is done.
- `crash_before_sending`: it crashes before it sends requests.
- `partly_sent`: it crashes after it has sent requests to some brokers only.
- `lost`, `lost_done`: the connection is lost before a multi arrives, or before its response.
- `fenced`: another controller takes over.
- `expired`: its session ends.
- `read_lost`: the connection is lost before a read.
"""

MAX_TURNS_UNTIL_QUIET: Final = 30
"""Turns without new events after which the clusters must be quiet."""

QUIET_TURNS: Final = 2
"""Turns in a row without a write or a request after which the clusters are quiet."""

_OTHER_CONTROLLER: Final = 1_999_999_999


class CrashError(Exception):
    """The controller is killed."""


@dataclass(frozen=True)
class ControllerFault:
    """A fault in a round: one of CONTROLLER_FAULTS, or `killed`, before the cycle reads anything."""

    kind: str
    count: int
    late: bool
    """Brokers still receive the requests in the queues of the crashed controller.

    Of reads, one that sets a watch is lost.
    """


def draw_faults(seed: int, rounds: int, often: float = 0.6) -> dict[int, ControllerFault]:
    """Draw the faults of the controller, by round."""
    random = Random(f"ordeals {seed}")  # noqa: S311 - no secret
    return {
        number: ControllerFault(random.choice(CONTROLLER_FAULTS), random.randint(1, 3), random.random() < 0.5)
        for number in range(rounds)
        if random.random() < often
    }


class _DiscardingLog(WriteBehindLog):
    """Discards all records, as no test of the model reads the tables."""

    def record(self, what: CycleRecord | BrokerResponse | AuditEntry | EndedDrains) -> None:
        pass


class _NonBlockingEvent(threading.Event):
    """Does not wait for the next cycle."""

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002 - as Event's
        return True


class _InterceptedChannels(ChannelManager):
    """Calls `on_send` in place of each send."""

    on_send: Callable[..., None]

    def send(
        self,
        batch: ControlBatch,
        live_brokers_to: Collection[int] = frozenset(),
        starting: Collection[int] = frozenset(),
    ) -> None:
        self.on_send(partial(super().send, starting=starting), batch, live_brokers_to)


class _InterceptedEngine(DecisionEngine):
    """Calls `on_decided` between a decision and the write."""

    on_decided: Callable[[], None]

    def decide(self, *args: Any, **options: Any) -> Decisions:  # noqa: ANN401 - as it is
        decided = super().decide(*args, **options)
        self.on_decided()
        return decided


@dataclass
class Simulation:
    """Runs all clusters until they are quiet, then checks them."""

    lake: Warehouse
    scenarios: Sequence[Scenario]
    rounds: int
    faults: dict[int, ControllerFault] = field(default_factory=dict)
    tree: Tree = field(default_factory=Tree)
    network: Network = field(default_factory=lambda: Network({}))
    clusters: list[SimulatedCluster] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    cycles: int = 0
    round: int = -1
    controller_terms: int = 0
    _session: Session | None = None
    _pending_fault: ControllerFault | None = None
    _fault_countdown: int = 0
    _has_sent: bool = False
    _multis: int = 0
    _is_crashing: bool = False
    _healed_at: int | None = None
    _last_activity: tuple[int, int] = (-1, -1)
    _quiet_turns: int = 0

    def __post_init__(self) -> None:
        self.clusters = [
            SimulatedCluster(index, scenario, self.tree, self.network) for index, scenario in enumerate(self.scenarios)
        ]
        for path in (*PATHS, "/config/changes"):
            self.tree.put(path)
        self.tree.put("/controller_epoch", b"7")
        for cluster in self.clusters:
            cluster.set_up()
        self.tree.on_writes = self._on_writes
        self.network.on_request = self._on_request
        self.network.accepts = self._accepts
        self.engine = _InterceptedEngine(self.lake, [])
        self.engine.on_decided = lambda: self._apply_events(Point.AFTER_DECISION)

    # the controller
    def run(self) -> list[SimulatedCluster]:
        """Run all rounds until the clusters are quiet; return the clusters that have faults."""
        with _patched(self):
            while not self._is_over:
                self._run_controller()
        if self._quiet_turns < QUIET_TURNS:
            for cluster in self.clusters:
                if cluster.last_turn > self.cycles - QUIET_TURNS:
                    cluster.add_fault("it does not become quiet")
        for cluster in self.clusters:
            for violation in violations(cluster):
                cluster.add_fault(violation)
        return [cluster for cluster in self.clusters if cluster.faults]

    def _run_controller(self) -> None:
        session = self._session = Session(self.tree, self._intercept_request)
        self.controller_terms += 1
        try:
            control = take_over(session, OURS)
            snapshot = Snapshot(snapshot_id=1, taken_at=datetime.now(UTC), cluster_id="c")
            controller = ResidentController(control, self.engine, _DiscardingLog(self.lake), snapshot, self.log.append)
            controller.watches.wakeup = _NonBlockingEvent()
            controller.broker_requests.channels = _InterceptedChannels(str(OURS), controller.responses.receive)
            controller.broker_requests.channels.on_send = self._intercept_send
            # replaces the recorded history, which `lifecycle` reads before each take-over
            controller.context.lost_states |= {key for cluster in self.clusters for key in cluster.lost}
            controller.initialize()
            controller.run()
        except (CrashError, FencedError, SessionLostError) as error:
            self._log_to_all(f"the controller ends: {type(error).__name__}")
            if self._pending_fault is None or self._pending_fault.late:
                self.network.step()
        finally:
            self._pending_fault, self._is_crashing = None, False
            session.intercept = lambda _: Interception.DONE
            for queue in self.network.queues:
                queue.stop()
            self.network.queues = []
            session.expire()

    # between two cycles
    def run_between_cycles(self) -> bool:
        """Run brokers and scenarios before each cycle; return whether the simulation is over."""
        if self._is_crashing:
            raise CrashError
        self.cycles += 1
        self._has_sent = False
        self._step_brokers()
        for cluster in self.clusters:
            cluster.begin_turn()
        if self.round < self.rounds:
            self.round += 1
            self._arm_fault()
            if self.round == self.rounds:
                self._pending_fault = None
                for cluster in self.clusters:
                    cluster.heal()
            self._apply_events(Point.BEFORE_CYCLE)
            if self._is_fault_due("killed"):
                raise CrashError
        else:
            self._count_quiet_turns()
        return self._is_over

    def _step_brokers(self) -> None:
        for cluster in self.clusters:
            if cluster.scenario.leads_first:
                cluster.run_leaders()
        self.network.step()
        for cluster in self.clusters:
            if not cluster.scenario.leads_first:
                cluster.run_leaders()

    def _arm_fault(self) -> None:
        self._pending_fault = self.faults.get(self.round)
        self._fault_countdown = self._pending_fault.count if self._pending_fault else 0
        if self._pending_fault:
            self._log_to_all(f"round {self.round}: {self._pending_fault}")

    def _count_quiet_turns(self) -> None:
        self._healed_at = self.cycles if self._healed_at is None else self._healed_at
        now = self._multis, self.tree.writes + self.network.deliveries
        self._quiet_turns = self._quiet_turns + 1 if now == self._last_activity else 0
        self._last_activity = now

    @property
    def _is_over(self) -> bool:
        long = self._healed_at is not None and self.cycles - self._healed_at > MAX_TURNS_UNTIL_QUIET
        return self._quiet_turns >= QUIET_TURNS or long

    def _apply_events(self, point: Point) -> None:
        if self.round < self.rounds:
            for cluster in self.clusters:
                cluster.apply_events(self.round, point)

    def _log_to_all(self, what: str) -> None:
        for cluster in self.clusters:
            cluster.log.append(f"-- {what}")

    # faults of the controller
    def _is_fault_due(self, *kinds: str) -> bool:
        """Whether the pending fault occurs now, which is its n-th occasion."""
        if self._pending_fault is None or self._pending_fault.kind not in kinds or self._fault_countdown <= 0:
            return False
        self._fault_countdown -= 1
        return self._fault_countdown == 0

    def _intercept_request(self, ops: Sequence[Any] | None) -> Interception:
        if not ops:
            sets_watch = ops is not None
            is_meant = self._pending_fault is not None and self._pending_fault.late == sets_watch
            return Interception.LOST if is_meant and self._is_fault_due("read_lost") else Interception.DONE
        if self._is_crashing:
            raise CrashError
        self._multis += 1
        if not any(isinstance(op, SetData) and op.path == "/controller_epoch" for op in ops):
            self._refuse_unfenced(ops)
            return self._inject_write_fault(ops)
        return Interception.DONE

    def _refuse_unfenced(self, ops: Sequence[Any]) -> None:
        first = ops[0]
        if not (isinstance(first, CheckVersion) and first.path == "/controller_epoch" and first.version >= 0):
            raise AssertionError(f"a multi that is not fenced: {ops}")

    def _inject_write_fault(self, ops: Sequence[Any]) -> Interception:
        session = self._session
        assert session is not None
        if self._is_fault_due("fenced"):
            self._elect_another()
        if self._is_fault_due("expired"):
            session.expire()
            return Interception.LOST
        if self._is_fault_due("lost"):
            return Interception.LOST
        if self._is_fault_due("lost_done"):
            return Interception.LOST_AND_DONE
        if self._is_fault_due("crash"):
            self.tree.multi(ops, session.client_id[0])
            raise CrashError
        return Interception.DONE

    def _elect_another(self) -> None:
        """A broker becomes the controller, does nothing, and resigns."""
        epoch = int(self.tree.get("/controller_epoch") or b"0") + 1
        data = encode_controller(_OTHER_CONTROLLER, 0)
        self.tree.multi([Delete("/controller", -1), Create("/controller", data, None, 1)], -2)
        self.tree.put("/controller_epoch", str(epoch).encode())
        self.tree.expire(-2)

    def _intercept_send(self, send: Callable[..., None], *args: Any) -> None:  # noqa: ANN401 - as Queues.tell
        if self._is_crashing or self._is_fault_due("crash_before_sending"):
            raise CrashError
        if not self._has_sent:
            self._has_sent = True
            self._apply_events(Point.BEFORE_SENDING)
        send(*args)
        if self._is_fault_due("partly_sent"):
            self._is_crashing = True

    def _accepts(self, broker: int) -> bool:
        """Whether a broker is sent requests; in a crash while sending, only the first brokers of each cluster are."""
        half = (
            self._pending_fault is not None and self._pending_fault.kind == "partly_sent" and self._fault_countdown <= 1
        )
        return not half or (self._pending_fault is not None and broker % MAX_BROKERS < self._pending_fault.count)

    # checks
    def _on_writes(self, writes: Sequence[Write]) -> None:
        for write in writes:
            cluster = None
            if write.path.startswith("/brokers/topics/"):
                cluster = cluster_of_topic(write.path.split("/")[3])
            if cluster is not None and 0 <= cluster < len(self.clusters):
                self.clusters[cluster].last_turn = self.cycles
                self.clusters[cluster].check_write(write)

    def _on_request(self, broker: Any, api: str, notice: Any) -> None:  # noqa: ANN401 - of the network
        cluster = self.clusters[cluster_of_broker(broker.id)]
        cluster.last_turn = self.cycles
        cluster.check_request(broker, api, notice)


@contextmanager
def _patched(simulation: Simulation) -> Iterator[None]:
    """Replace sockets, threads, pauses and the check for signals by those of the model."""
    with ExitStack() as stack:
        for name, value in {
            "jobs.adapters.zookeeper.multi_read.supports_multi_read": lambda _: True,
            "jobs.adapters.brokers.channel_manager.BrokerQueue": simulation.network.queue,
            "jobs.controller.controller.interrupted": simulation.run_between_cycles,
            "jobs.controller.controller.BrokerStartup.start": lambda _: (
                None
            ),  # it is a thread, and would run at any time
            "jobs.controller.controller.time": SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: None),
            # refused requests are sent again in the next cycle
            "jobs.controller.broker_requests.retries.time": SimpleNamespace(
                monotonic=lambda: simulation.cycles * MAX_DELAY_SECONDS
            ),
            "jobs.controller.auto_rebalance.time": SimpleNamespace(monotonic=lambda: 0.0),  # no automatic balancing
        }.items():
            stack.enter_context(patch(name, value))
        yield
