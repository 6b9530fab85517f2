"""The demo of load: replicas and leaders are even by counts, and three customers write most bytes to one broker.

Records of `clicks` have the customer as their key. The partitions of the large customers have the same leader, which no
plan by counts sees; samples of offsets and sizes show it. The load is measured before and after a plan by load, and has
to be what the plan predicts.
"""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Final

import msgspec

from jobs.adapters.embedded.kraft import EmbeddedKRaftCluster
from jobs.core.errors import SurveyorError
from jobs.core.units import format_bytes
from jobs.demo_scenario.scenario import ORDERS, DemoScenario
from jobs.demo_scenario.traffic import Traffic
from jobs.repositories.plans.plans_reader import find_plan
from jobs.repositories.snapshots import find_snapshot, rows_as_of
from jobs.runtime.console import stdout
from jobs.runtime.progress import progress
from schemas.rows import Partition, PartitionSample

CLICKS: Final = "clicks"

PARTITIONS: Final = 12

LARGE_CUSTOMERS: Final = {b"initech": 20, b"umbrella": 15, b"omni": 11}
"""Customers and their records among SHARED_RECORDS; the partitioner puts them into partitions 0, 6 and 3 of CLICKS."""

SHARED_RECORDS: Final = 50
"""Records of CLICKS in which each large customer has its share; a burst is a multiple of them."""

_KEYS: Final = tuple(chain.from_iterable(repeat(key, records) for key, records in LARGE_CUSTOMERS.items()))

HEADER_BYTES: Final = {CLICKS: 400, ORDERS: 100}
"""Bytes of a header of each record."""

INTERVAL_SECONDS: Final = 15.0
"""Seconds between two samples."""

MAX_ERROR: Final = 0.1
"""Share by which the measured load may differ from the predicted one."""

ELECTIONS: Final = "elections"
COPIES: Final = "by-load"
"""Names of the plans without and with copies."""


@dataclass(frozen=True, slots=True)
class LoadScenario(DemoScenario):
    """The steps on a KRaft cluster of three nodes."""

    cluster: EmbeddedKRaftCluster

    @property
    def address(self) -> dict[str, str]:
        return {"bootstrap_servers": self.bootstrap}

    def traffic(self) -> Traffic:
        return Traffic(self.bootstrap, (CLICKS, ORDERS), _details)

    def prepare(self) -> None:
        self.heading("Two topics, whose replicas and leaders are even")
        size = ["--partitions", str(PARTITIONS), "--replication-factor", "2"]
        for topic in (CLICKS, ORDERS):
            self.surveyor("plan", "assign", "--topic", topic, *size, "--apply", "--yes")
        self.surveyor("snapshot")
        self.surveyor("show", "brokers")

    def change(self) -> None:
        self.heading("Two samples of offsets and sizes are the load of an interval")
        before = self.measure()
        self.heading("Brokers are even by counts, and one has most of the load")
        self.surveyor("show", "load", "--by", "broker")
        self.surveyor("show", "load", "--by", "partition", "--top", "5")
        self.surveyor("status")
        self.heading("A plan by counts finds nothing to do")
        self.surveyor("plan", "reassign", "--rebalance")
        self.balance_by_load(before)

    def balance_by_load(self, before: float) -> None:
        """Balance loads, and compare the load before and after with the prediction of the plan."""
        self.heading("Plans by load: elections alone, which copy nothing, and with copies")
        self.surveyor("plan", "elect", "--by-load", "--name", ELECTIONS)
        self.surveyor("plan", "reassign", "--rebalance", "--by-load", "--name", COPIES)
        elections, copies = (self.predicted(name) for name in (ELECTIONS, COPIES))
        say = stdout().print
        say(f"\nworst broker now {copies['worst_before']:.2f} of the mean of its worst resource")
        say(f"  after elections alone {elections['worst_after']:.2f}, copying {format_bytes(elections['bytes'])}")
        say(f"  after elections and copies {copies['worst_after']:.2f}, copying {format_bytes(copies['bytes'])}")
        self.surveyor("commit", COPIES, "--apply", "--yes")
        self.heading("The load afterwards, measured again")
        self.surveyor("snapshot")
        after = self.measure()
        self.surveyor("show", "load", "--by", "broker")
        say("")
        for side, measured in (("before", before), ("after", after)):
            compare(side, measured, copies[f"worst_{side}"])

    def measure(self) -> float:
        """Take two samples and sum them up; return the largest load of a broker as a multiple of the mean."""
        self.surveyor("load", "sample")
        with progress(f"waiting {INTERVAL_SECONDS:.0f} s for the next sample"):
            time.sleep(INTERVAL_SECONDS)
        self.surveyor("load", "sample")
        self.surveyor("load", "rollup")
        return self.worst_multiple()

    def worst_multiple(self) -> float:
        """Return the largest disk, bytes in or bytes out of a broker between the last two samples, of the mean."""
        used = Counter[tuple[str, int]]()
        for resource, broker, amount in self.loads():
            used[resource, broker] += amount
        totals = Counter[str]()
        for (resource, _), amount in used.items():
            totals[resource] += amount
        return max(amount * len(self.cluster.nodes) / totals[resource] for (resource, _), amount in used.items())

    def loads(self) -> Iterator[tuple[str, int, int]]:
        """Yield resource, broker and bytes between the last two samples, of each replica in the newest snapshot."""
        warehouse = self.settings.warehouse
        samples = warehouse.typed_rows(PartitionSample)
        first, last = sorted({row.stored_at for row in samples})[-2:]
        sizes = {(row.topic, row.partition, row.stored_at): row.bytes or 0 for row in samples}
        for row in rows_as_of(warehouse, find_snapshot(warehouse), Partition):
            size = sizes[row.topic, row.partition, last]
            written = size - sizes[row.topic, row.partition, first]
            for broker in row.replicas:
                yield "disk", broker, size
                yield "in", broker, written
                if broker == row.leader:
                    yield "out", broker, written * (len(row.replicas) - 1)

    def predicted(self, plan: str) -> dict[str, Any]:
        """Return the figures by load of a plan."""
        figures: dict[str, Any] = msgspec.json.decode(find_plan(self.settings.warehouse, plan).figures or "{}")
        return figures


def compare(side: str, measured: float, predicted: float) -> None:
    """Show the measured load of the worst broker and that of the plan; raise SurveyorError if they differ."""
    stdout().print(f"worst broker {side}: measured {measured:.2f} of the mean, by the plan {predicted:.2f}")
    if abs(measured - predicted) > MAX_ERROR * predicted:
        raise SurveyorError(f"the load {side} the plan differs from its prediction by more than {MAX_ERROR:.0%}")


def _details(topic: str, number: int) -> dict[str, Any]:
    """Return the key and the header of a record: orders have a key each, and few customers have most clicks."""
    key = b"%d" % number
    if topic == CLICKS and (place := number % SHARED_RECORDS) < len(_KEYS):
        key = _KEYS[place]
    return {"key": key, "headers": {"padding": b"." * HEADER_BYTES[topic]}}
