"""What one cycle finds due, as a plan: after failures, and, where nobody else does it, of what /admin asks for.

`planner.reconciliation` decides; what it takes for new is looked up in history, which may know better. What is asked
for in /admin takes several steps. Where a broker is the controller it goes on with them, and they are named with what
they wait for; where nobody is, or where it is asked for, a plan holds the next step due of each. Each step leaves the
cluster in a state that Kafka's controller knows, from which it goes on when it takes over between two commits.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.adapters.delta.warehouse import Row
from jobs.adapters.spark.session import cached_with_counts
from jobs.planning.plan import PlanDraft
from jobs.planning.planning_tables import vanished_states
from jobs.planning.topics.existing_topic import operation
from jobs.repositories.failed_log_dirs import event_lines
from jobs.repositories.plans.repository import CONTROL
from jobs.repositories.snapshot_tables import SnapshotTables
from jobs.repositories.snapshots import as_of
from jobs.runtime.console import log
from planner.columns.shape import shaped
from planner.history.lost_states import vanished_rejections
from planner.history.snapshot_diff import KEY
from planner.leadership.failure_handling import changes_of, reconcile_verdicts, rejections_of
from planner.reconciliation.cycle import Cycle, CycleInput
from planner.reconciliation.decisions import FULFILLED
from planner.reconciliation.topic_deletion import DeletionStep
from schemas.enums import (
    CONFIRMED_UNDER,
    LEADER_DURING_DELETE,
    NO_CONTROLLER,
    WHOLE_TOPIC,
    Action,
    OperationKind,
    PlanKind,
    RejectionCode,
    RequestKind,
)
from schemas.notices import STOP_REPLICA
from schemas.response_codes import NONE
from schemas.tables import CHANGES, REJECTIONS

MAX_WAITING_LINES: Final = 20
"""Lines of what waits, at most."""

_MOVING: Final = "size(adding_replicas) + size(removing_replicas) > 0"
_REQUEST_KINDS: Final = frozenset({RequestKind.REASSIGN, RequestKind.PREFERRED_ELECTION, RequestKind.DELETE_TOPIC})

STATELESS: Final = "leader IS NULL AND understood AND (action IS NOT NULL OR code IS NOT NULL)"
"""Verdicts on partitions without a state znode: new, unless history knows better."""

_STATELESS_DECISIONS: Final = f"""leader_before IS NULL AND wanted = '{Action.ELECT}'
    AND NOT code <=> '{RejectionCode.NOT_UNDERSTOOD}'"""
"""The same of decisions."""

_REFUSED: Final = f"""code IS NOT NULL
    AND NOT (withdrawn AND code IN ({", ".join(f"'{code}'" for code in sorted(FULFILLED))}))"""
"""Decisions that are rejections: not those that say that a request is fulfilled."""

_REQUEST_DONE: Final = f"withdrawn OR action <=> '{Action.END_REASSIGNMENT}'"
"""Decisions after which a request is done with: a move that ends here needs its request no more."""


def plan_reconcile(at: SnapshotTables, *, allow_unclean: bool = False, requests: bool = False) -> PlanDraft:
    """Plan the changes, operations and rejections of one cycle.

    `requests`: what is asked for in /admin is planned, too, though somebody is the controller.
    """
    for line in event_lines(at.tables.warehouse, at.snapshot):
        log(f"surveyor: {line}")
    requested = as_of(at.tables.warehouse, at.snapshot, "requests")
    tables = _cycle_input(at, requested)
    if tables is None:
        return _after_failures(at, allow_unclean=allow_unclean, requests=requests)
    if requests or at.snapshot["controller_id"] == NO_CONTROLLER:
        return _RequestedSteps(at, replace(tables, allow_unclean=allow_unclean, is_resident=False), requested).planned()
    for line in _waiting_lines(at, Cycle(tables)):
        log(line)
    return _after_failures(at, allow_unclean=allow_unclean, requests=False)


def _after_failures(at: SnapshotTables, *, allow_unclean: bool, requests: bool) -> PlanDraft:
    """What is due where nothing is asked for, or is left to others: all partitions are looked at once."""
    known = at["partitions"], at["topics"], at["brokers"], at["broker_configs"]
    judged = reconcile_verdicts(*known, allow_unclean=allow_unclean)
    verdicts, counts = cached_with_counts(
        judged, due="action IS NOT NULL", refused="code IS NOT NULL", stateless=STATELESS
    )
    at_most = counts["due"] + counts["refused"]
    rejections = rejections_of(verdicts) if counts["refused"] else None
    if counts["stateless"]:
        vanished = vanished_states(at, verdicts.where(STATELESS))
        verdicts = verdicts.join(F.broadcast(vanished.select(*KEY)), KEY, "left_anti")
        rejections = rejections_of(verdicts).unionByName(vanished_rejections(vanished))
    parameters = {"allow_unclean": allow_unclean} | ({"requests": True} if requests else {})
    return PlanDraft(PlanKind.RECONCILE, parameters, changes_of(verdicts), rejections, at_most=at_most)


def _cycle_input(at: SnapshotTables, requests: list[Row]) -> CycleInput | None:
    """What a cycle looks at, None where nothing is asked for and nothing moves."""
    partitions = at["partitions"]
    is_moving = partitions.where(_MOVING).limit(1).count()
    if not (is_moving or any(row["kind"] in _REQUEST_KINDS for row in requests)):
        return None
    return CycleInput(
        partitions=partitions,
        topics=at["topics"],
        brokers=at["brokers"],
        broker_configs=at["broker_configs"],
        requests=at.tables.frame("requests", requests),
        stopped=at.tables.frame("answers", _stop_confirmations(at)),
    )


def _stop_confirmations(at: SnapshotTables) -> list[Row]:
    """Who said that a replica is stopped and its log deleted, under the controllership that the snapshot found last.

    Kafka's controller starts all replicas when it takes over: what was said before it did counts for nothing. Nor does
    what a broker said before it registered anew, but of a topic that is deleted. What `surveyor control` heard may be
    about a topic that it has removed since, and that was made anew: all is told again after it.
    """
    lake = at.tables.warehouse
    if _was_surveyor_control(at):
        return []
    epochs = {row["broker_id"]: row["broker_epoch"] for row in as_of(lake, at.snapshot, "brokers")}
    of_last = ("controller_epoch", "=", at.snapshot["controller_epoch"])
    rows = lake.rows("answers", ("api", "=", STOP_REPLICA), ("error", "=", NONE), of_last)
    return [
        row
        for row in rows
        if row["delete_partition"]
        and (row["leader_epoch"] == LEADER_DURING_DELETE or row["broker_epoch"] == epochs.get(row["broker_id"]))
    ]


def _was_surveyor_control(at: SnapshotTables) -> bool:
    """Tell whether `surveyor control` was the last controller: its plans name its epoch."""
    of_it = {CONTROL: at.snapshot["controller_epoch"]}
    kind = ("kind", "=", PlanKind.RECONCILE.value)
    parameters = at.tables.warehouse.read("plans", kind, columns=["parameters"])["parameters"].to_pylist()
    return any(of_it.items() <= json.loads(each).items() for each in parameters)


@dataclass(frozen=True, slots=True)
class _RequestedSteps:
    """What is due of everything, failures and requests."""

    at: SnapshotTables
    tables: CycleInput
    requests: list[Row]

    def planned(self) -> PlanDraft:
        at, cycle = self.at, Cycle(self.tables)
        decisions, counts = _tallied_decisions(cycle)
        vanished = vanished_states(at, decisions.where(_STATELESS_DECISIONS)) if counts["stateless"] else None
        if vanished is not None and vanished.limit(1).count():
            cycle = Cycle(replace(self.tables, partitions=_mark_not_understood(self.tables.partitions, vanished)))
            decisions, counts = _tallied_decisions(cycle)
        queued = any(row["kind"] == RequestKind.DELETE_TOPIC for row in self.requests)
        deletions = [row.asDict() for row in cycle.deletions.orderBy("topic").collect()] if queued else []
        waits = [_rejection(row) for row in deletions if row["code"] is not None]
        done = decisions.where(_REQUEST_DONE).orderBy(*KEY).collect() if counts["done_with"] else ()
        operations = [*self._withdrawals([row.asDict() for row in done]), *self._of_deletions(deletions, cycle)]
        return PlanDraft(
            PlanKind.RECONCILE,
            {"allow_unclean": self.tables.allow_unclean, "requests": True, CONFIRMED_UNDER: self._epoch},
            decisions.where("action IS NOT NULL").transform(shaped, CHANGES),
            _rejections(decisions, vanished).unionByName(
                at.tables.frame("rejections", waits), allowMissingColumns=True
            ),
            [row | {"sequence": number} for number, row in enumerate(operations)],
            at_most=counts["due"] + counts["refused"] + counts["stateless"] + len(waits),
        )

    @property
    def _epoch(self) -> int:
        """The controller epoch under which brokers confirmed what this plan counts on."""
        return int(self.at.snapshot["controller_epoch"])

    def _withdrawals(self, withdrawn: list[Row]) -> Iterator[Row]:
        """Requests that are done with; elections are, once none of a pass waits for another change."""
        done: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for row in withdrawn:
            done[row["wanted"]].add((row["topic"], row["partition"]))
        requests: dict[str, dict[str, list[int]]] = defaultdict(dict)
        elections: dict[str, list[int]] = defaultdict(list)
        elected = {_key(row) for row in self.requests if row["kind"] == RequestKind.PREFERRED_ELECTION}
        for row in sorted(self.requests, key=lambda row: (row["topic"] or "", row["partition"] or 0)):
            if row["kind"] == RequestKind.REASSIGN and _key(row) in done[Action.REASSIGN]:
                requests[row["topic"]][str(row["partition"])] = [*(row["replicas"] or ())]
        for topic, partition in sorted(elected) if elected <= done[Action.ELECT_PREFERRED] else ():
            elections[topic].append(partition)
        for topic, of_topic in requests.items():
            yield _operation(OperationKind.WITHDRAW_REASSIGNMENT, topic, {"orders": of_topic})
        for topic, partitions in elections.items():
            yield _operation(OperationKind.WITHDRAW_ELECTION, topic, {"partitions": partitions})

    def _of_deletions(self, deletions: list[Row], cycle: Cycle) -> Iterator[Row]:
        """The step of each queued topic; a confirmation holds until somebody else is the controller.

        So all replicas are told of each time, those too that have confirmed under an earlier controllership of ours.
        """
        going: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        if any(row["step"] == DeletionStep.DELETE for row in deletions):
            for topic, partition, broker in cycle.replicas_to_delete.orderBy(
                "topic", "partition", "broker_id"
            ).collect():
                going[topic][str(partition)].append(broker)
        epoch = {CONFIRMED_UNDER: self._epoch}
        removed = [row["topic"] for row in deletions if row["step"] == DeletionStep.REMOVE]
        versions = self._versions_of(removed) if removed else {}
        for row in deletions:
            topic, known = row["topic"], {"topic_id": row["topic_id"]}
            match row["step"]:
                case DeletionStep.DELETE:
                    yield _operation(OperationKind.DELETE_REPLICAS, topic, known | {"replicas": going[topic]})
                case DeletionStep.REMOVE:
                    yield _operation(
                        OperationKind.REMOVE_TOPIC, topic, known | epoch | {"topic_version": versions[topic]}
                    )
                case DeletionStep.REFUSE:
                    why = {"reason": row["reason"], "exists": row["code"] != RejectionCode.UNKNOWN_TOPIC}
                    yield _operation(OperationKind.WITHDRAW_DELETION, topic, why)

    def _versions_of(self, topics: list[str]) -> dict[str, int]:
        """Versions of topics: partitions that are added later are nobody's to have confirmed."""
        rows = as_of(self.at.tables.warehouse, self.at.snapshot, "topics", ("topic", "in", topics))
        return {row["topic"]: row["topic_version"] for row in rows}


def _tallied_decisions(cycle: Cycle) -> tuple[DataFrame, dict[str, int]]:
    return cached_with_counts(
        cycle.decisions,
        due="action IS NOT NULL",
        refused=_REFUSED,
        done_with=_REQUEST_DONE,
        stateless=_STATELESS_DECISIONS,
    )


def _rejections(decisions: DataFrame, vanished: DataFrame | None) -> DataFrame:
    """What decisions say of partitions without a change; of those whose state is gone, history says more."""
    refused = decisions.where(_REFUSED)
    if vanished is not None:
        refused = refused.join(F.broadcast(vanished.select(*KEY)), KEY, "left_anti")
    named = refused.drop("action", "reason").withColumnsRenamed({"wanted": "action", "why_not": "reason"})
    rows = named.transform(shaped, REJECTIONS)
    return rows if vanished is None else rows.unionByName(vanished_rejections(vanished))


def _mark_not_understood(partitions: DataFrame, vanished: DataFrame) -> DataFrame:
    """Partitions whose state is gone as such that are not understood: nobody elects, moves or creates them."""
    gone = vanished.selectExpr(*KEY, "true AS is_gone")
    named = [name for name in partitions.columns if name != "understood"]
    return partitions.join(F.broadcast(gone), KEY, "left").selectExpr(
        *named, "understood AND is_gone IS NULL AS understood"
    )


def _operation(kind: OperationKind, topic: str, data: dict[str, Any]) -> Row:
    return operation(0, kind, topic, json.dumps(data, sort_keys=True))


def _rejection(deletion: Row) -> Row:
    common = {"topic": deletion["topic"], "partition": WHOLE_TOPIC, "action": OperationKind.DELETE_TOPIC.value}
    return common | {"code": deletion["code"], "reason": deletion["reason"]}


def _key(row: Row) -> tuple[str, int]:
    return row["topic"], row["partition"]


def _waiting_lines(at: SnapshotTables, cycle: Cycle) -> Iterator[str]:
    """Say what waits for the controller that stays, Kafka's own or `surveyor control`, and for what."""
    rows = cycle.multi_step_work().orderBy("topic", "partition").limit(MAX_WAITING_LINES + 1).collect()
    for row in rows[:MAX_WAITING_LINES]:
        name = row.topic if row.partition is None else f"{row.topic}-{row.partition}"
        yield f"  waits for {_executor(at)}: {name}: {row.what}: {row.why}"
    if len(rows) > MAX_WAITING_LINES:
        yield "  ... and more; `surveyor show requests` has what is asked for in /admin"


def _executor(at: SnapshotTables) -> str:
    """Who carries it out, as the snapshot shows."""
    controller = at.snapshot["controller_id"]
    live = {row["broker_id"] for row in as_of(at.tables.warehouse, at.snapshot, "brokers")}
    return f"broker {controller}, the controller" if controller in live else "a controller that stays"
