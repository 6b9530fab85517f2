"""The plan of one reconcile cycle: changes after failures, and, without a controller, steps of requests in /admin.

`planner.reconciliation` decides. A partition that it takes for new is looked up in history, which may have its last
state. Requests in /admin take several steps. If a broker is the controller, it continues them, and the log shows what
they wait for. If there is no controller, or with --requests, a plan has the next step of each request. Each step leaves
the cluster in a state that Kafka's controller knows, and from which it can continue if it takes over between two
commits.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final, TypeVar

import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.adapters.clusters.interface import Cluster
from jobs.adapters.spark.session import cached_with_counts
from jobs.core.errors import UsageError
from jobs.planning.plan_draft import PlanDraft, make_plan
from jobs.planning.planning_tables import PlanningTables, vanished_states
from jobs.repositories.broker_responses import event_lines
from jobs.repositories.plans.plans_reader import read_plan
from jobs.repositories.snapshot_tables import SnapshotTables
from jobs.repositories.snapshots import live_brokers_as_of, refuse_unversioned, rows_as_of
from jobs.runtime.console import log
from jobs.runtime.plan_options import PlanOptions
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import stated_command
from planner.columns.shape import with_schema
from planner.history.lost_states import vanished_rejections
from planner.leadership.failure_handling import changes_of, reconcile_verdicts, rejections_of
from planner.reconciliation.cycle import Cycle, CycleInput
from planner.rules.decisions import FULFILLED, Decision
from planner.rules.topic_deletion import Deletion, DeletionStep
from schemas.enums import (
    ADMIN_REQUESTS,
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
from schemas.operation_data import (
    DeletedReplicas,
    RemovedTopic,
    WithdrawnDeletion,
    WithdrawnElection,
    WithdrawnReassignment,
)
from schemas.replica_assignment import IS_BEING_REASSIGNED
from schemas.response_codes import NO_ERROR
from schemas.rows import CONTROL, BrokerResponseRow, Key, Operation, RejectionRecord, Topic, ZnodeRequest
from schemas.stored_plan import Plan
from schemas.tables import CHANGES, PARTITION_KEY, REJECTIONS
from schemas.text import partition_name, pluralise

R = TypeVar("R", bound=Struct)

MAX_SUPERSEDED: Final = 5
"""Plans in a row that other runs may delete, before this run ends with an error."""

MAX_WAITING_LINES: Final = 20
"""Maximum number of lines about waiting requests."""

STATELESS: Final = "leader IS NULL AND understood AND (action IS NOT NULL OR code IS NOT NULL)"
"""Condition for verdicts on partitions without a state znode: new, unless history has a state."""

_STATELESS_DECISIONS: Final = f"""leader_before IS NULL AND wanted = '{Action.ELECT}'
    AND NOT code <=> '{RejectionCode.NOT_UNDERSTOOD}'"""
"""Condition for decisions on partitions without a state znode, as STATELESS is for verdicts."""

_REFUSED: Final = f"""code IS NOT NULL
    AND NOT (withdrawn AND code IN ({", ".join(f"'{code}'" for code in sorted(FULFILLED))}))"""
"""Condition for decisions that are rejections, except decisions that only report a fulfilled request."""

_REQUEST_DONE: Final = f"withdrawn OR action <=> '{Action.END_REASSIGNMENT}'"
"""Condition for decisions after which a request can be removed: a move that ends here no longer needs its request."""


def make_reconcile_plan(settings: Settings, cluster: Cluster, *, allow_unclean: bool, requests: bool) -> Plan:
    """Take a snapshot, and make a plan of what is due on it, as `plan_reconcile` does.

    Another run that plans no changes on a later snapshot deletes a plan that has none: plan again in that case.
    """
    options = PlanOptions(refresh=True, command=stated_command(settings, "reconcile"))
    for tries_left in reversed(range(MAX_SUPERSEDED)):
        created = make_plan(
            settings,
            options,
            lambda tables: plan_reconcile(tables, allow_unclean=allow_unclean, requests=requests),
            cluster,
        )
        try:
            plan = read_plan(settings.warehouse, created["plan_id"])
            break
        except UsageError:
            if created["changes"] or not tries_left:
                raise
            log("surveyor: another run has planned on a later snapshot; this one plans again")
    tasks = f", {len(plan.tasks)} operations" if plan.tasks else ""
    log(
        f"surveyor: plan {created['plan_id']} on snapshot {created['snapshot_id']}: "
        f"{pluralise(created['changes'], 'change')}{tasks}"
    )
    return plan


def plan_reconcile(tables: PlanningTables, *, allow_unclean: bool = False, requests: bool = False) -> PlanDraft:
    """Plan the changes, operations and rejections of one cycle.

    With `requests`, requests in /admin are planned even though another process is the controller.
    """
    refuse_unversioned(tables.snapshot, "plan reconcile")
    for line in event_lines(tables.warehouse, tables.snapshot):
        log(f"surveyor: {line}")
    requested = rows_as_of(tables.warehouse, tables.snapshot, ZnodeRequest)
    cycle_input = _cycle_input(tables, requested)
    if cycle_input is None:
        return _after_failures(tables, allow_unclean=allow_unclean, requests=requests)
    if requests or tables.snapshot.controller_id == NO_CONTROLLER:
        return _RequestedSteps(
            tables, replace(cycle_input, allow_unclean=allow_unclean, is_resident=False), requested
        ).planned()
    for line in _waiting_lines(tables, Cycle(cycle_input)):
        log(line)
    return _after_failures(tables, allow_unclean=allow_unclean, requests=False)


def _after_failures(tables: SnapshotTables, *, allow_unclean: bool, requests: bool) -> PlanDraft:
    """Plan the changes after failures only; all partitions are evaluated in one pass."""
    frames = tables["partitions"], tables["topics"], tables["brokers"], tables["broker_configs"]
    judged = reconcile_verdicts(*frames, allow_unclean=allow_unclean)
    verdicts, counts = cached_with_counts(
        judged, due="action IS NOT NULL", refused="code IS NOT NULL", stateless=STATELESS
    )
    at_most = counts["due"] + counts["refused"]
    rejections = rejections_of(verdicts) if counts["refused"] else None
    if counts["stateless"]:
        vanished = vanished_states(tables, verdicts.where(STATELESS))
        verdicts = verdicts.join(F.broadcast(vanished.select(*PARTITION_KEY)), PARTITION_KEY, "left_anti")
        rejections = rejections_of(verdicts).unionByName(vanished_rejections(vanished))
    parameters = {"allow_unclean": allow_unclean} | ({"requests": True} if requests else {})
    return PlanDraft(PlanKind.RECONCILE, parameters, changes_of(verdicts), rejections, at_most=at_most)


def _cycle_input(tables: SnapshotTables, requests: list[ZnodeRequest]) -> CycleInput | None:
    """Return the input of a cycle, None if nothing is requested and nothing moves."""
    partitions = tables["partitions"]
    has_reassignment = partitions.where(IS_BEING_REASSIGNED).limit(1).count()
    if not (has_reassignment or any(row.kind in ADMIN_REQUESTS for row in requests)):
        return None
    return CycleInput(
        partitions=partitions,
        topics=tables["topics"],
        brokers=tables["brokers"],
        broker_configs=tables["broker_configs"],
        requests=tables.spark_warehouse.frame("requests", requests),
        stopped=tables.spark_warehouse.frame("answers", _stop_confirmations(tables)),
    )


def _stop_confirmations(tables: SnapshotTables) -> list[BrokerResponseRow]:
    """Return confirmations that a replica was stopped and its log deleted, under the controller of the snapshot.

    Kafka's controller starts all replicas when it takes over, so earlier confirmations are void. Confirmations from
    before a broker registered again are void too, except confirmations for a topic being deleted. A confirmation
    received by `surveyor control` may be about a topic that it removed and that was created again, so after it
    everything is sent again.
    """
    warehouse = tables.warehouse
    if _was_surveyor_control(tables):
        return []
    epochs = {row.broker_id: row.broker_epoch for row in live_brokers_as_of(warehouse, tables.snapshot)}
    of_last = ("controller_epoch", "=", tables.snapshot.controller_epoch)
    rows = warehouse.typed_rows(BrokerResponseRow, ("api", "=", STOP_REPLICA), ("error", "=", NO_ERROR), of_last)
    return [
        row
        for row in rows
        if row.delete_partition
        and (row.leader_epoch == LEADER_DURING_DELETE or row.broker_epoch == epochs.get(row.broker_id))
    ]


def _was_surveyor_control(tables: SnapshotTables) -> bool:
    """Return whether `surveyor control` was the last controller: its plans name its controller epoch."""
    of_it = {CONTROL: tables.snapshot.controller_epoch}
    kind = ("kind", "=", PlanKind.RECONCILE.value)
    parameters = tables.warehouse.read("plans", kind, columns=["parameters"])["parameters"].to_pylist()
    return any(of_it.items() <= json.loads(text).items() for text in parameters)


@dataclass(frozen=True, slots=True)
class _RequestedSteps:
    """Plans the steps due for failures and requests."""

    tables: SnapshotTables
    cycle_input: CycleInput
    requests: list[ZnodeRequest]

    def planned(self) -> PlanDraft:
        tables, cycle = self.tables, Cycle(self.cycle_input)
        decisions, counts = _tallied_decisions(cycle)
        vanished = vanished_states(tables, decisions.where(_STATELESS_DECISIONS)) if counts["stateless"] else None
        if vanished is not None and vanished.limit(1).count():
            cycle = Cycle(
                replace(self.cycle_input, partitions=_mark_not_understood(self.cycle_input.partitions, vanished))
            )
            decisions, counts = _tallied_decisions(cycle)
        queued = any(row.kind == RequestKind.DELETE_TOPIC for row in self.requests)
        deletions = _collected(cycle.deletions.orderBy("topic"), Deletion) if queued else []
        waits = [_rejection(row, row.code) for row in deletions if row.code is not None]
        finished = decisions.where(_REQUEST_DONE).select(*PARTITION_KEY, "wanted").orderBy(*PARTITION_KEY)
        done = _collected(finished, Decision) if counts["done_with"] else []
        operations = [*self._withdrawals(done), *self._of_deletions(deletions, cycle)]
        return PlanDraft(
            PlanKind.RECONCILE,
            {"allow_unclean": self.cycle_input.allow_unclean, "requests": True, CONFIRMED_UNDER: self._epoch},
            decisions.where("action IS NOT NULL").transform(with_schema, CHANGES),
            _rejections(decisions, vanished).unionByName(
                tables.spark_warehouse.frame("rejections", waits), allowMissingColumns=True
            ),
            [msgspec.structs.replace(row, sequence=number) for number, row in enumerate(operations)],
            at_most=counts["due"] + counts["refused"] + counts["stateless"] + len(waits),
        )

    @property
    def _epoch(self) -> int:
        """The controller epoch under which brokers gave the confirmations this plan relies on."""
        epoch = self.tables.snapshot.controller_epoch
        assert epoch is not None  # noqa: S101 - a snapshot without it has no confirmations
        return epoch

    def _withdrawals(self, withdrawn: list[Decision]) -> Iterator[Operation]:
        """Yield operations that remove requests: elections only once none of them waits for another change."""
        done: dict[Action, set[Key]] = defaultdict(set)
        for decision in withdrawn:
            done[decision.wanted].add(decision.key)
        requests: dict[str, dict[int, list[int]]] = defaultdict(dict)
        elections: dict[str, list[int]] = defaultdict(list)
        elected = {row.key for row in self.requests if row.kind == RequestKind.PREFERRED_ELECTION}
        for request in sorted(self.requests, key=attrgetter("key")):
            if request.kind == RequestKind.REASSIGN and request.key in done[Action.REASSIGN]:
                topic, partition = request.key
                requests[topic][partition] = [*(request.replicas or ())]
        for topic, partition in sorted(elected) if elected <= done[Action.ELECT_PREFERRED] else ():
            elections[topic].append(partition)
        for topic, of_topic in requests.items():
            yield WithdrawnReassignment(orders=of_topic).operation(topic)
        for topic, partitions in elections.items():
            yield WithdrawnElection(partitions=partitions).operation(topic)

    def _of_deletions(self, deletions: list[Deletion], cycle: Cycle) -> Iterator[Operation]:
        """Yield the step of each queued topic; a confirmation is valid until another process is the controller.

        So StopReplica is sent for all replicas each time, even those confirmed under an earlier controllership of
        Surveyor.
        """
        going: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        if any(row.step is DeletionStep.DELETE for row in deletions):
            for topic, partition, broker in cycle.replicas_to_delete.orderBy(
                "topic", "partition", "broker_id"
            ).collect():
                going[topic][partition].append(broker)
        removed = [row.topic for row in deletions if row.step is DeletionStep.REMOVE]
        versions = self._versions_of(removed) if removed else {}
        for row in deletions:
            topic, topic_id = row.topic, row.topic_id
            match row.step:
                case DeletionStep.DELETE:
                    yield DeletedReplicas(topic_id=topic_id, replicas=going[topic]).operation(topic)
                case DeletionStep.REMOVE:
                    yield RemovedTopic(
                        topic_id=topic_id, controller_epoch=self._epoch, topic_version=versions[topic]
                    ).operation(topic)
                case DeletionStep.REFUSE:
                    exists = row.code is not RejectionCode.UNKNOWN_TOPIC
                    yield WithdrawnDeletion(reason=row.reason, exists=exists).operation(topic)

    def _versions_of(self, topics: list[str]) -> dict[str, int]:
        """Return the versions of topics, which make the removal stale if partitions are added.

        No broker has confirmed the deletion of added partitions.
        """
        rows = rows_as_of(self.tables.warehouse, self.tables.snapshot, Topic, ("topic", "in", topics))
        return {row.topic: row.topic_version for row in rows if row.topic_version is not None}


def _tallied_decisions(cycle: Cycle) -> tuple[DataFrame, dict[str, int]]:
    return cached_with_counts(
        cycle.decisions,
        due="action IS NOT NULL",
        refused=_REFUSED,
        done_with=_REQUEST_DONE,
        stateless=_STATELESS_DECISIONS,
    )


def _rejections(decisions: DataFrame, vanished: DataFrame | None) -> DataFrame:
    """Return decisions without a change as REJECTIONS; those with a lost state get a reason from history."""
    refused = decisions.where(_REFUSED)
    if vanished is not None:
        refused = refused.join(F.broadcast(vanished.select(*PARTITION_KEY)), PARTITION_KEY, "left_anti")
    renamed = refused.drop("action", "reason").withColumnsRenamed({"wanted": "action", "why_not": "reason"})
    rows = renamed.transform(with_schema, REJECTIONS)
    return rows if vanished is None else rows.unionByName(vanished_rejections(vanished))


def _mark_not_understood(partitions: DataFrame, vanished: DataFrame) -> DataFrame:
    """Mark partitions with a lost state as not understood, so that no rule elects, moves or creates them."""
    lost = vanished.selectExpr(*PARTITION_KEY, "true AS is_gone")
    other_columns = [name for name in partitions.columns if name != "understood"]
    return partitions.join(F.broadcast(lost), PARTITION_KEY, "left").selectExpr(
        *other_columns, "understood AND is_gone IS NULL AS understood"
    )


def _collected(rows: DataFrame, row: type[R]) -> list[R]:
    """Collect rows as the structs of the rules in plain Python."""
    return msgspec.convert([values.asDict() for values in rows.collect()], list[row])  # type: ignore[valid-type]


def _rejection(deletion: Deletion, code: str) -> RejectionRecord:
    action = OperationKind.DELETE_TOPIC.value
    return RejectionRecord(
        topic=deletion.topic, partition=WHOLE_TOPIC, action=action, code=code, reason=deletion.reason
    )


def _waiting_lines(tables: SnapshotTables, cycle: Cycle) -> Iterator[str]:
    """Yield what waits for the resident controller, Kafka's or `surveyor control`, and why."""
    rows = cycle.multi_step_work().orderBy("topic", "partition").limit(MAX_WAITING_LINES + 1).collect()
    for row in rows[:MAX_WAITING_LINES]:
        name = row.topic if row.partition is None else partition_name(row.topic, row.partition)
        yield f"  waiting for {_executor(tables)}: {name}: {row.what}: {row.why}"
    if len(rows) > MAX_WAITING_LINES:
        yield "  ... and more; `surveyor show requests` lists the requests in /admin"


def _executor(tables: SnapshotTables) -> str:
    """Return which controller executes the requests, according to the snapshot."""
    controller = tables.snapshot.controller_id
    live = {row.broker_id for row in live_brokers_as_of(tables.warehouse, tables.snapshot)}
    return f"broker {controller}, the controller" if controller in live else "a resident controller"
