"""Many simulated clusters in one ZooKeeper, and the real controller, whose every cycle decides for all of them.

A decision by Spark takes about a second for one partition as for a thousand. So many small clusters run side by side,
each with its own brokers, topics and scenario. `ResidentController.run` itself runs the cycles: between two cycles it
asks whether it was interrupted, and there the simulation takes its turn. A fault of the controller concerns all
clusters: it crashes after a write or after sending some requests, connections and sessions are lost, another controller
takes over.

With a `Listener`, brokers propose ISRs to the controller instead of writing them, as at their default protocol. The
thread of the ISR writer then takes turns with the cycle at each access to ZooKeeper, and with that of a controller that
was replaced and does not know it yet.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from queue import Empty
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from kazoo.protocol.serialization import CheckVersion, Create, Delete, SetData

from jobs.adapters.brokers.channel_manager import ChannelManager
from jobs.adapters.brokers.control_encoding import ControlBatch
from jobs.adapters.brokers.responses import BrokerResponse
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.controllership import SessionLostError, take_over
from jobs.controller.broker_apis.controller_api_messages import ALTER_PARTITION, CONTROLLED_SHUTDOWN
from jobs.controller.broker_requests.retries import MAX_DELAY_SECONDS
from jobs.controller.controller import ResidentController
from jobs.controller.decision_engine import DecisionEngine, Decisions
from jobs.controller.request_handler import RequestHandler
from jobs.controller.write_behind import CycleRecord, EndedDrains, WriteBehindLog
from jobs.core.errors import FencedError
from jobs.repositories.plans.commit_rows import AuditEntry
from schemas.rows import Snapshot
from schemas.znode_codecs import Endpoint, encode_controller
from tests.jobs.controller.broker_apis.asking import CALLER, controlled_shutdown_request
from tests.jobs.controller.model.clusters import SimulatedCluster
from tests.jobs.controller.model.invariants import violations
from tests.jobs.controller.model.isr_oracle import IsrOracle, IsrWriterNow, Window
from tests.jobs.controller.model.isr_thread import KilledError, ParkingQueue, SteppedThread
from tests.jobs.controller.model.leaders import AlterPartitionManager, IsrRequest
from tests.jobs.controller.model.network import MAX_BROKERS, Network, cluster_of_broker, cluster_of_topic
from tests.jobs.controller.model.scenarios import Point, Scenario
from tests.jobs.controller.model.zookeeper import Interception, Session, Tree, Write
from tests.jobs.support.controllers.recorded_log import RecordedLog
from tests.jobs.support.zookeeper.fenced_writes import OURS
from tests.jobs.support.zookeeper.kafka_tree import PATHS
from tests.planner.frames import broker_config

if TYPE_CHECKING:
    from concurrent.futures import Future

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

_BOUNCE_TURNS: Final = 6
"""Turns within which a broker that registered again may count as failed."""


@dataclass(frozen=True)
class Listener:
    """How brokers ask the controller."""

    protocol: str
    """Their inter.broker.protocol.version."""
    version: int
    """The latest version of AlterPartition that they know."""
    seed: int
    """Of the order in which threads run."""


PROTOCOLS: Final = (("2.7", 0), ("3.2", 1), ("3.3", 2), ("3.9", 3))
"""Protocols with the latest version of AlterPartition that their brokers know; before 2.8, topics have no ids."""


def draw_listener(seed: int) -> Listener:
    return Listener(*Random(f"listener {seed}").choice(PROTOCOLS), seed)  # noqa: S311 - no secret


@dataclass(eq=False, slots=True)
class Term:
    """A controllership: its process, and what brokers have asked it."""

    session: Session | None = None
    request_handler: RequestHandler | None = None
    writer: SteppedThread | None = None
    controller: ResidentController | None = None
    is_dead: bool = False
    """The process has ended."""
    troubles: int = 0
    """Lost connections, other controllers, and the end of its session."""
    multis: int = 0
    """Multis of the ISR writer."""
    known: int = 0
    """The zxid up to which it has read all that it watches."""
    turn_began: tuple[int, int] = (0, 0)
    """The zxid at which its present cycle began, and its troubles until then."""
    shutting: dict[int, bool] = field(default_factory=dict)
    """Brokers that have asked for a controlled shutdown since they registered, and whether it is granted."""
    requests: ParkingQueue | None = None
    """What waits for the ISR writer."""
    asked: list["Future[Any]"] = field(default_factory=list)

    def is_deposed(self, tree: Tree) -> bool:
        """Whether it has lost the controllership, whether it knows so or not."""
        assert self.session is not None and self.controller is not None  # noqa: PT018 - for the type checker
        version = self.controller.control.epoch_version
        return self.is_dead or self.session.over or tree.nodes["/controller_epoch"].version != version

    def writer_now(self) -> IsrWriterNow:
        """Return its ISR writer as it is now."""
        assert self.controller is not None
        granted = frozenset(broker for broker, is_granted in self.shutting.items() if is_granted)
        return IsrWriterNow(self.controller.control.epoch, granted)

    def begin_cycle(self, zxid: int) -> None:
        """Note that a cycle has ended, and that another one begins."""
        began, troubles = self.turn_began
        if troubles == self.troubles:
            self.known = began
        self.turn_began = zxid, self.troubles

    def kill(self) -> None:
        """End the process; brokers that wait for its answers lose their connections."""
        self.is_dead = True
        if self.writer is not None:
            self.writer.kill()
        for future in self.asked:
            if not future.done():
                future.set_exception(ConnectionResetError())
        self.end()

    def end(self) -> None:
        """Answer nothing any more; the process remains."""
        self.troubles += 1
        if self.request_handler is not None and not self.is_dead:
            self.request_handler.close()
        if self.session is not None:
            self.session.expire()


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


def draw_faults(seed: int, rounds: int) -> dict[int, ControllerFault]:
    """Draw the faults of the controller, by round."""
    random = Random(f"ordeals {seed}")  # noqa: S311 - no secret
    return {
        number: ControllerFault(random.choice(CONTROLLER_FAULTS), random.randint(1, 3), random.random() < 0.5)
        for number in range(rounds)
        if random.random() < 0.6
    }


class _DiscardingLog(WriteBehindLog):
    """Discards all records, as no test of the model reads the tables."""

    def record(self, item: CycleRecord | BrokerResponse | AuditEntry | EndedDrains) -> None:
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


@dataclass(repr=False)
class Simulation:
    """Runs all clusters until they are quiet, then checks them."""

    warehouse: Warehouse
    scenarios: Sequence[Scenario]
    rounds: int
    faults: dict[int, ControllerFault] = field(default_factory=dict)
    listener: Listener | None = None
    """How brokers ask the controller; None if they write ISRs themselves."""
    tree: Tree = field(default_factory=Tree)
    network: Network = field(default_factory=lambda: Network({}))
    clusters: list[SimulatedCluster] = field(default_factory=list)
    log: RecordedLog = field(default_factory=RecordedLog)
    cycles: int = 0
    round: int = -1
    controller_terms: int = 0
    term: Term = field(default_factory=Term)
    isr_requests: int = 0
    """Requests of brokers, those that were sent again included."""
    _replaced: list[Term] = field(default_factory=list)
    """Terms of controllers that were replaced, and whose processes still answer."""
    _pending_fault: ControllerFault | None = None
    _fault_countdown: int = 0
    _has_sent: bool = False
    _multis: int = 0
    _is_crashing: bool = False
    _healed_at: int | None = None
    _last_activity: tuple[int, int] = (-1, -1)
    _quiet_turns: int = 0
    _moves: int = 0
    """How often all was quiet, and something was done so that moves begin or go on."""

    def __post_init__(self) -> None:
        self.oracle = IsrOracle(self.tree)
        self.random = Random(f"threads {self.listener.seed if self.listener else 0}")  # noqa: S311 - no secret
        self.clusters = [
            SimulatedCluster(index, scenario, self.tree, self.network, self.oracle, self.ask)
            for index, scenario in enumerate(self.scenarios)
        ]
        for path in (*PATHS, "/config/changes"):
            self.tree.put(path)
        self.tree.put("/controller_epoch", b"7")
        self.tree.on_writes = self.oracle.record
        for cluster in self.clusters:
            for broker in cluster.brokers.values() if self.listener else ():
                broker.make_manager, broker.ask_shutdown = self._make_manager, self._ask_shutdown
            cluster.set_up()
        self.tree.on_writes = self._on_writes
        self.network.on_request = self._on_request
        self.network.accepts = self._accepts
        self.engine = _InterceptedEngine(self.warehouse, [])
        if self.listener is not None:
            protocols = dict.fromkeys(self.network.brokers, self.listener.protocol)
            self.engine.set_broker_configs(
                [
                    broker_config(broker, "inter.broker.protocol.version", protocol)
                    for broker, protocol in protocols.items()
                ]
            )
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
        term = self.term = self.network.term = Term(request_handler=RequestHandler() if self.listener else None)
        session = term.session = Session(self.tree, partial(self._intercept_request, term))
        self.controller_terms += 1
        for cluster in self.clusters:
            cluster.shut_down, cluster.is_taken_over = set(), True
        is_replaced = False
        try:
            control = take_over(session, OURS)
            snapshot = Snapshot(snapshot_id=1, taken_at=datetime.now(UTC), cluster_id="c")
            controller = ResidentController(
                control,
                self.engine,
                _DiscardingLog(self.warehouse),
                snapshot,
                self.log,
                request_handler=term.request_handler,
            )
            term.controller, term.known = controller, self.tree.zxid
            term.turn_began = self.tree.zxid, 0
            controller.endpoints.served = [Endpoint(None, "PLAINTEXT", "127.0.0.1", 9999)]
            controller.watches.wakeup = _NonBlockingEvent()
            # refused requests are sent again in the next cycle
            controller.retries.monotonic = lambda: self.cycles * MAX_DELAY_SECONDS
            term.requests = ParkingQueue(lambda: term.writer, Empty)
            controller.isr_changes.writer._waiting = term.requests  # type: ignore[assignment] # noqa: SLF001
            controller.broker_requests.channels = _InterceptedChannels(str(OURS), controller.responses.receive)
            controller.broker_requests.channels.on_send = self._intercept_send
            # replaces the recorded history, which `preparation` reads before each take-over
            controller.context.lost_states |= {key for cluster in self.clusters for key in cluster.lost}
            controller.initialize()
            for cluster in self.clusters:
                cluster.is_taken_over = False
            controller.run()
        except (CrashError, FencedError, SessionLostError) as error:
            self._log_to_all(f"the controller ends: {type(error).__name__}")
            is_late = self._pending_fault is None or self._pending_fault.late
            is_replaced = is_late and not isinstance(error, CrashError)
            if is_late:
                self.network.step()
            if isinstance(error, CrashError):
                term.kill()
        finally:
            self._pending_fault, self._is_crashing = None, False
            for queue in self.network.queues:
                queue.stop()
            self.network.queues = []
            if is_replaced and self.listener:
                self._replaced.append(term)
            elif not term.is_dead:
                term.end()

    # what brokers ask the controller
    def make_thread(self, target: Callable[[], None], **_: Any) -> SteppedThread:  # noqa: ANN401 - as Thread
        """Replaces the class of the ISR writer's thread."""
        self.term.writer = SteppedThread(target)
        return self.term.writer

    def _make_manager(self, broker: int, epoch: int) -> AlterPartitionManager:
        assert self.listener is not None
        return AlterPartitionManager(broker, epoch, self.listener.version, self.ask)

    def _asked(self, broker: int) -> tuple[Term, RequestHandler] | None:
        """Return the term of the controller that a broker asks, None if it cannot connect to it."""
        process = self.network.brokers[broker].process
        term = process.term if process else None
        return None if term is None or term.is_dead else (term, term.request_handler)

    def ask(self, isr_request: IsrRequest) -> None:
        """Send a request of a broker to the controller that it knows."""
        cluster, asked = self.clusters[cluster_of_broker(isr_request.broker)], self._asked(isr_request.broker)
        isr_request.future = None
        if not {proposal.key for proposal in isr_request.proposals} <= cluster.lost:
            # what has lost its state is proposed for ever
            self.isr_requests += 1
            cluster.last_turn = self.cycles
        if asked is None:
            return
        term, request_handler = asked
        cluster.log.append(f"  {isr_request.broker} asks, version {isr_request.version}: {_proposals(isr_request)}")
        self.oracle.ask(isr_request, term.writer_now())
        window, granted = self._window(term), {**term.shutting}

        def check(future: "Future[Any]") -> None:
            if future.exception() is not None:
                if not isinstance(future.exception(), ConnectionResetError):
                    cluster.add_fault(f"{isr_request} is not answered: {future.exception()!r}")
                return
            response = future.result()
            cluster.log.append(f"  {isr_request.broker} is answered {_answers(response)}")
            shutting = {broker: granted.get(broker, False) for broker in {**granted, **term.shutting}}
            troubled = self._is_troubled(term, window)
            for fault in self.oracle.check_answer(
                isr_request, window, term.multis, shutting, response, is_troubled=troubled
            ):
                cluster.add_fault(fault)

        isr_request.future = request_handler.submit(CALLER, ALTER_PARTITION, isr_request.version, isr_request.entity())
        term.asked.append(isr_request.future)
        isr_request.future.add_done_callback(check)

    def _window(self, term: Term) -> Window:
        bounced = self.oracle.turns[-_BOUNCE_TURNS] if len(self.oracle.turns) > _BOUNCE_TURNS else 0
        return Window(self.tree.zxid, term.known, bounced, term.troubles, term.multis)

    def _is_troubled(self, term: Term, window: Window) -> bool:
        return term.troubles > window.troubles or term.is_deposed(self.tree)

    def _ask_shutdown(self, broker: int, epoch: int) -> "Future[Any] | None":
        cluster, asked = self.clusters[cluster_of_broker(broker)], self._asked(broker)
        if asked is None:
            return None
        term, request_handler = asked
        cluster.log.append(f"  {broker} asks for a controlled shutdown")
        window = self._window(term)
        term.shutting.setdefault(broker, False)

        def check(future: "Future[Any]") -> None:
            if future.exception() is not None:
                return
            response = future.result()
            cluster.log.append(f"  {broker} is answered {response}")
            troubled = self._is_troubled(term, window)
            for fault in self.oracle.check_shutdown(broker, epoch, window, response, is_troubled=troubled):
                cluster.add_fault(fault)
            if not response.error_code and self.oracle.brokers[broker].values[-1][1] == epoch:
                term.shutting[broker] = True
                if term is self.term:
                    cluster.shut_down.add(broker)

        future = request_handler.submit(CALLER, CONTROLLED_SHUTDOWN, 3, controlled_shutdown_request(3, broker, epoch))
        term.asked.append(future)
        future.add_done_callback(check)
        return future

    def _let_writers_run(self) -> None:
        """Let the threads of ISR writers run for some steps, that of the present controller and of former ones."""
        for term in (self.term, *self._replaced):
            while term.writer is not None and self._has_work(term) and self.random.random() < 0.4:
                term.writer.step()

    def _has_work(self, term: Term) -> bool:
        writer = term.writer
        is_idle = writer is None or writer.is_over or (writer.is_waiting and not term.requests)
        return not is_idle

    def _drain_writers(self) -> None:
        """Let the ISR writers finish what they do, almost always; end some of the replaced controllers."""
        for term in (self.term, *self._replaced):
            is_in_time = self.round >= self.rounds or self.random.random() < 0.7
            while is_in_time and term.writer is not None and self._has_work(term):
                term.writer.step()
        for term in [*self._replaced]:
            if self.round >= self.rounds or self.random.random() < 0.5:
                self._replaced.remove(term)
                term.end()

    # between two cycles
    def run_between_cycles(self) -> bool:
        """Run brokers and scenarios before each cycle; return whether the simulation is over."""
        if self._is_crashing:
            raise CrashError
        self.cycles += 1
        self._has_sent = False
        self.oracle.turns.append(self.tree.zxid)
        self.term.begin_cycle(self.tree.zxid)
        self._step_brokers()
        self._drain_writers()
        if self._is_crashing:
            raise CrashError
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
        now = self._multis, self.tree.writes + self.network.deliveries + self.isr_requests
        self._quiet_turns = self._quiet_turns + 1 if now == self._last_activity else 0
        self._last_activity = now
        steps = (SimulatedCluster.move_a_replica, SimulatedCluster.catch_up)
        if self._quiet_turns == QUIET_TURNS and self._moves < len(steps):
            concerned = [cluster for cluster in self.clusters if steps[self._moves](cluster)]
            self._moves += 1
            if concerned:
                self._quiet_turns, self._healed_at = 0, self.cycles

    @property
    def _is_over(self) -> bool:
        long = self._healed_at is not None and self.cycles - self._healed_at > MAX_TURNS_UNTIL_QUIET
        return self._quiet_turns >= QUIET_TURNS or long

    def _apply_events(self, point: Point) -> None:
        if self.round < self.rounds:
            for cluster in self.clusters:
                cluster.apply_events(self.round, point)

    def _log_to_all(self, text: str) -> None:
        for cluster in self.clusters:
            cluster.log.append(f"-- {text}")

    # faults of the controller
    def _is_fault_due(self, *kinds: str) -> bool:
        """Whether the pending fault occurs now, which is its n-th occasion."""
        if self._pending_fault is None or self._pending_fault.kind not in kinds or self._fault_countdown <= 0:
            return False
        self._fault_countdown -= 1
        return self._fault_countdown == 0

    def _intercept_request(self, term: Term, ops: Sequence[Any] | None) -> Interception:
        is_writer = term.writer is not None and term.writer.is_current
        if is_writer and term.writer is not None:
            term.writer.park()
            term.multis += bool(ops)
        elif term is self.term:
            self._let_writers_run()
        outcome = self._outcome(term, ops) if term is self.term else Interception.DONE
        term.troubles += outcome is not Interception.DONE
        if self._is_crashing and is_writer:
            raise KilledError
        return outcome

    def _outcome(self, term: Term, ops: Sequence[Any] | None) -> Interception:
        if not ops:
            sets_watch = ops is not None
            is_meant = self._pending_fault is not None and self._pending_fault.late == sets_watch
            return Interception.LOST if is_meant and self._is_fault_due("read_lost") else Interception.DONE
        is_writer = term.writer is not None and term.writer.is_current
        if self._is_crashing:
            raise KilledError if is_writer else CrashError
        self._multis += 1
        if not any(isinstance(op, SetData) and op.path == "/controller_epoch" for op in ops):
            self._refuse_unfenced(ops)
            try:
                return self._inject_write_fault(ops)
            except CrashError:
                if not is_writer:
                    raise
                self._is_crashing = True
                raise KilledError from None
        return Interception.DONE

    def _refuse_unfenced(self, ops: Sequence[Any]) -> None:
        first = ops[0]
        if not (isinstance(first, CheckVersion) and first.path == "/controller_epoch" and first.version >= 0):
            raise AssertionError(f"a multi that is not fenced: {ops}")

    def _inject_write_fault(self, ops: Sequence[Any]) -> Interception:
        session = self.term.session
        assert session is not None
        if self._is_fault_due("fenced"):
            self.term.troubles += 1
            self._elect_another()
        if self._is_fault_due("expired"):
            self.term.troubles += 1
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
        self._let_writers_run()
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
        self.oracle.record(writes)
        writer = self._writer_now()
        for write in writes:
            cluster = None
            if write.path.startswith("/brokers/ids/"):
                broker = int(write.path.split("/")[3])
                for term in (self.term, *self._replaced):
                    term.shutting.pop(broker, None)
                for one in self.clusters:
                    one.shut_down.discard(broker)
            if write.path.startswith("/brokers/topics/"):
                cluster = cluster_of_topic(write.path.split("/")[3])
            if cluster is not None and 0 <= cluster < len(self.clusters):
                self.clusters[cluster].last_turn = self.cycles
                self.clusters[cluster].check_write(write, writer)

    def _writer_now(self) -> IsrWriterNow | None:
        """Return the ISR writer that writes now, None if none does."""
        for term in (self.term, *self._replaced):
            if term.writer is not None and term.writer.is_current:
                return term.writer_now()
        return None

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
            "jobs.controller.controller.is_interrupted": simulation.run_between_cycles,
            "jobs.controller.controller.BrokerStartup.start": lambda _: (
                None
            ),  # it is a thread, and would run at any time
            "jobs.controller.broker_apis.isr_writer.Thread": simulation.make_thread,
            "jobs.controller.controller.time": SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: None),
            "jobs.controller.admin_request_removal.time": SimpleNamespace(monotonic=lambda: 0.0),
            "jobs.controller.auto_rebalance.time": SimpleNamespace(monotonic=lambda: 0.0),  # no automatic balancing
        }.items():
            stack.enter_context(patch(name, value))
        yield


def _proposals(isr_request: IsrRequest) -> str:
    return "; ".join(
        f"{proposal.key[0]}-{proposal.key[1]}: le {proposal.leader_epoch}, isr {proposal.isr}, "
        f"version {proposal.partition_epoch}"
        for proposal in isr_request.proposals
    )


def _answers(response: Any) -> str:  # noqa: ANN401 - of kio
    if response.error_code:
        return f"error {int(response.error_code)}"
    return "; ".join(
        f"{partition.partition_index}: error {int(partition.error_code)}, le {partition.leader_epoch}, "
        f"isr {[*partition.isr]}, version {partition.partition_epoch}"
        for topic in response.topics
        for partition in topic.partitions
    )
