"""Sentences of changes and rejections: one template each, for the rules in plain Python and the transforms on Spark.

A rule gives a code and details; the reason of a row is the sentence of that code with these details. A template names
its details in braces; `:ids` marks a list of broker ids. `planner.columns.sentences` fills them in on Spark.
"""

from collections.abc import Iterator
from string import Formatter
from typing import Any, Final

from schemas.text import DRAINED_LEADS
from schemas.znode_paths import ZNODE_LIMIT_REASON


class Sentence:
    """A sentence, or a part of one, with details."""

    __slots__ = ("_lists", "_plain", "template")

    def __init__(self, template: str) -> None:
        self.template = template
        self._plain = template.replace(":ids", "")
        self._lists = [name for _, name, is_list in self.parts() if name is not None and is_list]

    def parts(self) -> Iterator[tuple[str, str | None, bool]]:
        """Yield each text with the detail that follows it, None at the end, and whether that is a list of ids."""
        for text, name, spec, _ in Formatter().parse(self.template):
            yield text, name, spec == "ids"

    def say(self, **details: Any) -> str:  # noqa: ANN401 - numbers, texts and lists
        """Return the sentence with these details.

        >>> Sentence("gone from the ISR: {gone:ids}; broker {leader} leads").say(gone=[1, 2], leader=3)
        'gone from the ISR: 1, 2; broker 3 leads'
        """
        for name in self._lists:
            details[name] = ", ".join(map(str, details[name]))
        return self._plain.format(**details)


# any rule
QUARANTINED: Final = Sentence("it is in quarantine")
DELETION_REQUESTED: Final = Sentence("its topic is queued for deletion")
NO_STATE: Final = Sentence("it has no state znode yet")
FAILED_LOG_DIRS: Final = Sentence("; log dir failed, as it answered with error 56: broker {failed:ids}")
DRAINED_BROKER_LEADS: Final = Sentence(f"; {DRAINED_LEADS}{{leader}} leads")
WAITS_FOR_CHANGE: Final = Sentence("another change of this partition is made first: {action}")

# deferred preferred elections
NOT_STABLE: Final = Sentence(
    "preferred replica {preferred} is not known to have been in the ISR in all of the last {snapshots} snapshots"
)
NOT_SETTLED: Final = Sentence(
    "broker {preferred} joined {age} s before this snapshot, as snapshots recorded it; the minimum is {minimum} s"
)
CAPPED: Final = Sentence(
    "over the cap of {cap} elections per plan: brokers with more imbalance come first; "
    "commit this plan, then plan again"
)

# leadership after failures
UNPLANNED_IN_QUARANTINE: Final = Sentence("it is in quarantine: no change is planned for it")
FIRST_LEADER: Final = Sentence("{what}: first live replica leads, live replicas are in sync")
NO_REPLICA_ALIVE: Final = Sentence("no replica is alive: {replicas:ids}")
ISR_EMPTY: Final = Sentence("no replica is in sync: the ISR is empty")
ISR_CANNOT_LEAD: Final = Sentence("no in-sync replica can lead: ISR {isr:ids}")
ALIVE_NOT_ELECTABLE: Final = Sentence("; alive but cannot be elected: {survivors:ids}")
ISR_GONE: Final = Sentence("no in-sync replica is alive: gone are {gone:ids}")
ISR_SHRINKS: Final = Sentence("gone from the ISR: {gone:ids}")
NO_LEADER: Final = Sentence("no leader")
LEADERS_LOG_DIR_FAILED: Final = Sentence("the log dir of broker {leader} failed")
LEADER_GONE: Final = Sentence("broker {leader} is gone")
UNCLEAN_ELECTED: Final = Sentence("; unclean election of {leader} may lose data")
IN_SYNC_ELECTED: Final = Sentence("; first live in-sync replica is {leader}")

# elections of the preferred replica
UNKNOWN_IN_SNAPSHOT: Final = Sentence("no such partition in the snapshot")
PREFERRED_ELECTED: Final = Sentence("preferred replica {preferred} is alive and in the ISR")
LEADER_IN_QUARANTINE: Final = Sentence("its leader {leader} is alive, but its registration is in quarantine")
ALREADY_PREFERRED: Final = Sentence("already led by its preferred replica {preferred}")
PREFERRED_LEADS_DEAD: Final = Sentence(", which is not alive")
PREFERRED_DRAINED: Final = Sentence("preferred replica {preferred} is drained")
PREFERRED_LOG_DIR_FAILED: Final = Sentence(
    "the log dir of preferred replica {preferred} failed: it answered with error 56"
)
PREFERRED_NOT_ALIVE: Final = Sentence("preferred replica {preferred} is not alive")
PREFERRED_NOT_IN_ISR: Final = Sentence("preferred replica {preferred} is not in the ISR")

# controlled shutdowns and drains
DRAINED: Final = Sentence("drained: {brokers:ids}")
LEAVES_ISR: Final = Sentence("; out of the ISR")
NOT_IN_ISR: Final = Sentence("; not in the ISR")
ONLY_REPLICA: Final = Sentence("its only replica is {replicas:ids}")
NO_OTHER_CAN_LEAD: Final = Sentence("no other in-sync replica can lead: ISR {isr:ids}")
LEADER_NOT_ALIVE: Final = Sentence("its leader {leader} is not alive: elect another one first")
LAST_IN_ISR: Final = Sentence("no other replica is in the ISR")

# restarts of brokers
OFFLINE_NOW: Final = Sentence("it has no live leader now: leader {leader}")
ENDS_WITH_TARGET: Final = Sentence("its reassignment ends with replicas {target:ids} only, and may end at any moment")
TOO_FEW_REPLICAS: Final = Sentence(
    "replicas on other brokers: {count}, needed in sync: {needed}; waiting does not help"
)
TOO_FEW_IN_SYNC: Final = Sentence(
    "in-sync replicas on other brokers: {count}, needed: {needed}; now in sync: {isr:ids}"
)
MIN_ISR_OF_TOPIC_UNREAD: Final = Sentence("min.insync.replicas of its topic cannot be read")
MIN_ISR_OF_BROKERS_UNREAD: Final = Sentence(
    "its topic does not set min.insync.replicas, and the default of broker {brokers:ids} cannot be read"
)
DEPENDS_ON_UNCERTAIN: Final = Sentence(
    "it depends on broker {uncertain:ids}, which is registered, but not known to be alive"
)

# steps of a reassignment
UNKNOWN_PARTITION: Final = Sentence("no such partition")
INVALID_TARGET: Final = Sentence("requested replicas [{requested:ids}]: expected broker ids without duplicates")
ALREADY_ASSIGNED: Final = Sentence("partition is already assigned as requested")
TARGET_NOT_ALIVE: Final = Sentence("not alive: {not_live:ids}; the request waits for them")
NO_LEADER_YET: Final = Sentence("it has no leader yet")
NO_LIVE_LEADER: Final = Sentence("it has no live leader in its ISR")
WAITS_FOR_BROKER: Final = Sentence("{lagging:ids} of the target not in the ISR yet; not alive: {dead:ids}")
WAITS_FOR_ISR: Final = Sentence("{lagging:ids} of the target not in the ISR yet")
TARGET_CANNOT_LEAD: Final = Sentence("no replica of the target may lead")
TO_BE_STOPPED: Final = Sentence("to be stopped: {unstopped:ids}")
MOVE_REQUESTED: Final = Sentence("requested replicas: {requested:ids}")
MOVE_REPLACED: Final = Sentence(", replacing the reassignment in progress")
TARGET_IN_SYNC: Final = Sentence("the target is in sync: {target:ids}")
MOVE_RESUMES: Final = Sentence(
    "its reassignment resumes: {left_behind:ids} must follow again until the target is in sync"
)
REPLICAS_REMOVED: Final = Sentence("replicas removed: {removing:ids}")

# plans that move and reorder replicas, and undrains
HAS_REPLICAS: Final = Sentence("it has these replicas already")
REASSIGNED_ALREADY: Final = Sentence("it is being reassigned already")
REQUEST_WAITS: Final = Sentence(
    "a request to move it to [{requested:ids}] waits: let it run, or `surveyor cancel --partitions {partition}`, and "
    "take a new snapshot"
)
LEADERLESS: Final = Sentence(
    "no live leader in its ISR (leader {leader}, ISR [{isr:ids}]): no follower could copy from it, and an empty "
    "replica could be elected; elect a leader first, `surveyor status` shows how"
)
MOVES: Final = Sentence("adds [{adding:ids}], removes [{removing:ids}]")
REORDERED: Final = Sentence("order of replicas changes, no data moves")
STEP: Final = Sentence("step {step} of {steps}: {what}")
WHY_REORDERED: Final = Sentence("{why}: order of replicas changes, no data moves")
WHY_ELECTED: Final = Sentence("{why}: first in sync is {leader}")
ADDS_UNKNOWN: Final = Sentence("going back adds brokers that are {what}: {brokers:ids}")
EVENS_OUT_LEADERS: Final = Sentence("evens out leaders: the first of its list leads once its replicas are there")
DRAINED_PARTITION_GONE: Final = Sentence("the partition that was drained is gone")
CHANGED_SINCE_DRAIN: Final = Sentence("its replicas are now {replicas:ids}, the drain made them {made:ids}")
ORDER_RESTORED: Final = Sentence("its order is the one before the drain already")
NO_LONGER_DRAINED: Final = Sentence("no longer drained, and not in the ISR: {out:ids}")
NO_LEADER_TO_FOLLOW: Final = Sentence("it has no live leader to follow")

# targets from an earlier snapshot
GONE_SINCE: Final = Sentence("it is gone since snapshot {snapshot}")
UNKNOWN_THEN: Final = Sentence("snapshot {snapshot} does not know it")
CREATED_AGAIN: Final = Sentence("its topic was deleted and created again after {snapshot}")
MOVED_THEN: Final = Sentence("snapshot {snapshot} shows it being moved: nowhere to go back to")

# faults of targets
UNKNOWN_TAKE_SNAPSHOT: Final = Sentence("no such partition in the snapshot: take a new one if it is newer")
NO_REPLICAS: Final = Sentence("no replicas")
FACTOR_CHANGES: Final = Sentence("replication factor {now} → {then}: not asked for")
DUPLICATE_BROKER: Final = Sentence("names a broker twice: {target:ids}")
ADDS_DEAD: Final = Sentence("adds brokers not alive in the snapshot: {dead:ids}")
MIN_ISR_UNREACHABLE: Final = Sentence("{count} {noun} can never reach min.insync.replicas={min_isr}")
RACK_CROWDED: Final = Sentence("most replicas in one rack {now} → {then}: [{racks}], where {needed} can be")
RACKS_LOST: Final = Sentence("racks {now} → {then}: [{racks}]")
NAMED_TWICE: Final = Sentence("the plan names this partition {times} times")
ZNODE_TOO_LARGE: Final = Sentence(
    "{path} would take {size} bytes while this runs, more than {limit}: "
    f"{ZNODE_LIMIT_REASON}; plan the topic in several parts"
)
INTERMEDIATE_FAULT: Final = Sentence("on the way, after wave {wave}: {fault}")

# offline partitions
LEADER_ALIVE: Final = Sentence("its leader {leader} is alive")
LAST_STATE: Final = Sentence(
    "its state znode is gone: snapshot {seen} showed leader {leader}, ISR {isr:ids}, leader epoch {leader_epoch}"
)
STATE_VANISHED: Final = Sentence("{last_state}; `surveyor plan recover` offers leaders for it, with the evidence")
NOT_OFFLINE: Final = Sentence("it has a leader, or no state yet, or its topic is queued for deletion")
ILLEGAL_TRANSITION: Final = Sentence("it is {state}; {allowed}")
CANDIDATE: Final = Sentence("{broker} ({history}{choice})")
KAFKAS_CHOICE: Final = Sentence("; Kafka's choice")
LAST_IN_SYNC: Final = Sentence("in sync until snapshot {snapshot}, leader epochs since: {epochs}{size}")
NEVER_IN_SYNC: Final = Sentence("never seen in sync{size}")
LOG_SIZE: Final = Sentence(", log of {size} bytes")
UNCLEAN_MAY_LOSE: Final = Sentence("unclean election may lose {lost}; ranked: {ranked}")
LOSES_SINCE: Final = Sentence("what was acknowledged after {since} UTC")
LOSES_ALL: Final = Sentence("all that was acknowledged")
HOLDERS_OUTSIDE: Final = Sentence("; alive and in the ISR, but not assigned, so it cannot lead: {outside:ids}")
NOT_ALLOWED: Final = Sentence("; not allowed")
CHECK_LOGS: Final = Sentence("; not allowed: check the logs of its brokers, then name it with --partition")
RESTART_BROKERS: Final = Sentence(
    "; restart its brokers afterwards: without a restart they ignore a state whose versions start again"
)
HOLDERS_HIDDEN: Final = Sentence("alive but cannot be elected, and may hold the data: {hidden:ids}")
NONE_ELECTABLE: Final = Sentence("no replica is alive and may be elected: {replicas:ids}")

# deletions of topics
UNKNOWN_TOPIC: Final = Sentence("topic does not exist")
DELETION_DISABLED: Final = Sentence("delete.topic.enable is false")
TOPIC_MOVES: Final = Sentence("a partition of the topic is being moved")
ELECTION_REQUESTED: Final = Sentence("a preferred election is requested")
REPLICAS_UNREACHABLE: Final = Sentence("unreachable replicas on brokers {brokers:ids}")
