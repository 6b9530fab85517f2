"""Many islands in one ZooKeeper, and the real controller, whose every cycle decides for all of them at once.

A decision by Spark takes about a second whether it is about one partition or a thousand: so little clusters stand side
by side, each with brokers, topics and a history of its own. `ResidentController.run` itself cycles: between two cycles
it asks whether it was interrupted, and there the world takes its turn. What befalls the controller befalls all islands:
it crashes after a write or half through telling, connections and sessions are lost, another controller takes over.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from kazoo.protocol.serialization import CheckVersion, Create, Delete, SetData
from pyspark.sql import SparkSession

from jobs.adapters.brokers.channel_manager import ChannelManager
from jobs.adapters.brokers.control_encoding import ControlBatch
from jobs.adapters.brokers.responses import BrokerResponse
from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.controllership import SessionLostError, take_over
from jobs.controller.broker_requests.retries import MAX_DELAY_SECONDS
from jobs.controller.controller import ResidentController
from jobs.controller.decisions.engine import DecisionEngine, Decisions
from jobs.controller.write_behind import AuditEntry, CycleRecord, EndedDrains, WriteBehindLog
from jobs.core.errors import FencedError
from schemas.znodes import encode_controller
from tests.jobs.controller.model.invariants import faults_at_rest
from tests.jobs.controller.model.islands import Island
from tests.jobs.controller.model.network import MOST_BROKERS, Network, island_of_broker, island_of_topic
from tests.jobs.controller.model.scripts import Point, Script
from tests.jobs.controller.model.zookeeper import Fate, Session, Tree, Write
from tests.jobs.support.zookeeper.fenced import OURS
from tests.jobs.support.zookeeper.kafka_tree import PATHS

FATES: Final = ("crash", "crash_untold", "half_told", "lost", "lost_done", "fenced", "expired", "read_lost")
"""What befalls the controller: it crashes at its n-th multi, once that is done; at its n-th telling; having told some
brokers and not others; a multi is lost on its way, or its answer; another controller takes over; its session ends;
a reading is lost."""

_TURNS_TO_REST: Final = 30
"""Turns without anything new after which there must be rest."""

_STILL: Final = 2
"""Turns in a row without a write or a notice after which it is quiet."""

_OTHER_CONTROLLER: Final = 1_999_999_999


class CrashError(Exception):
    """The controller is killed."""


@dataclass(frozen=True)
class Ordeal:
    """What befalls the controller in a round: one of FATES, or `killed`, before it looks at all."""

    kind: str
    count: int
    late: bool
    """Brokers still take what the crashed controller had put into their queues; of readings, one that sets a watch is
    lost."""


def ordeals(seed: int, rounds: int, often: float = 0.6) -> dict[int, Ordeal]:
    """Draw what befalls the controller, by round."""
    random = Random(f"ordeals {seed}")  # noqa: S311 - no secret
    return {
        number: Ordeal(random.choice(FATES), random.randint(1, 3), random.random() < 0.5)
        for number in range(rounds)
        if random.random() < often
    }


class _Forgetful(WriteBehindLog):
    """The tables are another matter."""

    def put(self, what: CycleRecord | BrokerResponse | AuditEntry | EndedDrains) -> None:
        pass


class _Awake(threading.Event):
    """Nobody waits for the next tick."""

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002 - as Event's
        return True


class _Queues(ChannelManager):
    """Lets something happen before and after each telling."""

    tells: Callable[..., None]

    def tell(
        self, announcement: ControlBatch, alone: Iterable[int] = (), introduced: Collection[int] = frozenset()
    ) -> None:
        self.tells(partial(super().send, introduced=introduced), announcement, alone)


class _Decider(DecisionEngine):
    """Lets something happen between a decision and its writing."""

    then: Callable[[], None]

    def decide(self, *args: Any, **options: Any) -> Decisions:  # noqa: ANN401 - as it is
        decided = super().decide(*args, **options)
        self.then()
        return decided


@dataclass
class World:
    """All of it: runs until everything is quiet, then says what is wrong with which island."""

    spark: SparkSession
    lake: Warehouse
    scripts: Sequence[Script]
    rounds: int
    ordeals: dict[int, Ordeal] = field(default_factory=dict)
    tree: Tree = field(default_factory=Tree)
    network: Network = field(default_factory=lambda: Network({}))
    islands: list[Island] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    cycles: int = 0
    round: int = -1
    offices: int = 0
    _session: Session | None = None
    _armed: Ordeal | None = None
    _left: int = 0
    _told: bool = False
    _multis: int = 0
    _dying: bool = False
    _calm_since: int | None = None
    _last: tuple[int, int] = (-1, -1)
    _still: int = 0

    def __post_init__(self) -> None:
        self.islands = [Island(index, script, self.tree, self.network) for index, script in enumerate(self.scripts)]
        for path in (*PATHS, "/config/changes"):
            self.tree.put(path)
        self.tree.put("/controller_epoch", b"7")
        for island in self.islands:
            island.begin()
        self.tree.seen = self._see
        self.network.check = self._hear
        self.network.takes = self._takes
        decider = _Decider.of(SparkWarehouse(self.spark, self.lake), [], allow_unclean=False)
        assert isinstance(decider, _Decider)
        self.decider = decider
        self.decider.then = lambda: self._happen(Point.DECIDED)

    # the controller
    def run(self) -> list[Island]:
        """Live through all rounds, and come to rest; return the islands that have faults."""
        with _modelled(self):
            while not self._is_over:
                self._hold_office()
        if self._still < _STILL:
            for island in self.islands:
                if island.last_turn > self.cycles - _STILL:
                    island.fault("it does not come to rest")
        for island in self.islands:
            for fault in faults_at_rest(island):
                island.fault(fault)
        return [island for island in self.islands if island.faults]

    def _hold_office(self) -> None:
        session = self._session = Session(self.tree, self._meddle)
        self.offices += 1
        try:
            control = take_over(session, "memory", OURS)
            controller = ResidentController(
                control, self.decider, _Forgetful(self.lake), {"snapshot_id": 1, "cluster_id": "c"}, self.log.append
            )
            controller.watches.wakeup = _Awake()
            controller.precomputer = None  # time stands still here, and what is foreseen would be out of date at once
            controller.broker_requests.queues = _Queues(str(OURS), controller.responses.receive)
            controller.broker_requests.queues.tells = self._tell
            # stands for what history says at each take-over (`tenure`)
            controller.context.lost_states |= {key for island in self.islands for key in island.lost}
            controller.initialize()
            controller.run()
        except (CrashError, FencedError, SessionLostError) as error:
            self._note(f"the controller ends: {type(error).__name__}")
            if self._armed is None or self._armed.late:
                self.network.step()
        finally:
            self._armed, self._dying = None, False
            session.meddle = lambda _: Fate.DONE
            for queue in self.network.queues:
                queue.stop()
            self.network.queues = []
            session.expire()

    # the turn of the world
    def turn(self) -> bool:
        """Let all others do something, before each cycle; tell whether it is over."""
        if self._dying:
            raise CrashError
        self.cycles += 1
        self._told = False
        self._act()
        for island in self.islands:
            island.begin_turn()
        if self.round < self.rounds:
            self.round += 1
            self._arm()
            if self.round == self.rounds:
                self._armed = None
                for island in self.islands:
                    island.calm()
            self._happen(Point.BEFORE)
            if self._counts("killed"):
                raise CrashError
        else:
            self._rest()
        return self._is_over

    def _act(self) -> None:
        for island in self.islands:
            if island.script.leads_first:
                island.turn()
        self.network.step()
        for island in self.islands:
            if not island.script.leads_first:
                island.turn()

    def _arm(self) -> None:
        self._armed = self.ordeals.get(self.round)
        self._left = self._armed.count if self._armed else 0
        if self._armed:
            self._note(f"round {self.round}: {self._armed}")

    def _rest(self) -> None:
        self._calm_since = self.cycles if self._calm_since is None else self._calm_since
        now = self._multis, self.tree.writes + self.network.deliveries
        self._still = self._still + 1 if now == self._last else 0
        self._last = now

    @property
    def _is_over(self) -> bool:
        long = self._calm_since is not None and self.cycles - self._calm_since > _TURNS_TO_REST
        return self._still >= _STILL or long

    def _happen(self, point: Point) -> None:
        if self.round < self.rounds:
            for island in self.islands:
                island.happen(self.round, point)

    def _note(self, what: str) -> None:
        for island in self.islands:
            island.log.append(f"-- {what}")

    # what befalls the controller
    def _counts(self, *kinds: str) -> bool:
        """Whether it befalls it now: the n-th time."""
        if self._armed is None or self._armed.kind not in kinds or self._left <= 0:
            return False
        self._left -= 1
        return self._left == 0

    def _meddle(self, ops: Sequence[Any] | None) -> Fate:
        if not ops:
            sets_watch = ops is not None
            is_meant = self._armed is not None and self._armed.late == sets_watch
            return Fate.LOST if is_meant and self._counts("read_lost") else Fate.DONE
        if self._dying:
            raise CrashError
        self._multis += 1
        if not any(isinstance(op, SetData) and op.path == "/controller_epoch" for op in ops):
            self._refuse_unfenced(ops)
            return self._befall(ops)
        return Fate.DONE

    def _refuse_unfenced(self, ops: Sequence[Any]) -> None:
        first = ops[0]
        if not (isinstance(first, CheckVersion) and first.path == "/controller_epoch" and first.version >= 0):
            raise AssertionError(f"a multi that is not fenced: {ops}")

    def _befall(self, ops: Sequence[Any]) -> Fate:
        session = self._session
        assert session is not None
        if self._counts("fenced"):
            self._elect_another()
        if self._counts("expired"):
            session.expire()
            return Fate.LOST
        if self._counts("lost"):
            return Fate.LOST
        if self._counts("lost_done"):
            return Fate.LOST_AND_DONE
        if self._counts("crash"):
            self.tree.multi(ops, session.client_id[0])
            raise CrashError
        return Fate.DONE

    def _elect_another(self) -> None:
        """A broker becomes the controller, does nothing, and lets go again."""
        epoch = int(self.tree.get("/controller_epoch") or b"0") + 1
        data = encode_controller(_OTHER_CONTROLLER, 0)
        self.tree.multi([Delete("/controller", -1), Create("/controller", data, None, 1)], -2)
        self.tree.put("/controller_epoch", str(epoch).encode())
        self.tree.expire(-2)

    def _tell(self, tell: Callable[..., None], *args: Any) -> None:  # noqa: ANN401 - as Queues.tell
        if self._dying or self._counts("crash_untold"):
            raise CrashError
        if not self._told:
            self._told = True
            self._happen(Point.TOLD)
        tell(*args)
        if self._counts("half_told"):
            self._dying = True

    def _takes(self, broker: int) -> bool:
        """While it crashes in the midst of telling, only the first brokers of each island are told."""
        half = self._armed is not None and self._armed.kind == "half_told" and self._left <= 1
        return not half or (self._armed is not None and broker % MOST_BROKERS < self._armed.count)

    # who looks
    def _see(self, writes: Sequence[Write]) -> None:
        for write in writes:
            island = None
            if write.path.startswith("/brokers/topics/"):
                island = island_of_topic(write.path.split("/")[3])
            if island is not None and 0 <= island < len(self.islands):
                self.islands[island].last_turn = self.cycles
                self.islands[island].see(write)

    def _hear(self, broker: Any, api: str, notice: Any) -> None:  # noqa: ANN401 - of the network
        island = self.islands[island_of_broker(broker.id)]
        island.last_turn = self.cycles
        island.hear(broker, api, notice)


@contextmanager
def _modelled(world: World) -> Iterator[None]:
    """Put the models in the place of what they stand for: sockets, threads, pauses, and the wish to end."""
    with ExitStack() as stack:
        for name, value in {
            "jobs.adapters.zookeeper.multi_read.supports_multi_read": lambda _: True,
            "jobs.adapters.brokers.channel_manager.BrokerQueue": world.network.queue,
            "jobs.controller.controller.interrupted": world.turn,
            "jobs.controller.controller.BrokerStartup.start": lambda _: None,  # a thread of its own, at any time
            "jobs.controller.controller.time": SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: None),
            # whoever refused is told again in the next cycle
            "jobs.controller.broker_requests.retries.time": SimpleNamespace(
                monotonic=lambda: world.cycles * MAX_DELAY_SECONDS
            ),
            "jobs.controller.auto_rebalance.time": SimpleNamespace(
                monotonic=lambda: 0.0
            ),  # nothing is balanced by itself
        }.items():
            stack.enter_context(patch(name, value))
        yield
