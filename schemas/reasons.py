"""Sentences of changes and rejections: one template each, for the rules in plain Python and the transforms on Spark.

A rule gives a code and details; the reason of a row is the sentence of that code with these details. A template names
its details in braces; `:ids` marks a list of broker ids. `planner.columns.sentences` fills them in on Spark. A reason
that only one module of `jobs` gives is a text in that module.
"""

import re
from collections.abc import Iterator
from string import Formatter
from typing import Any, Final

from schemas.text import DRAINED_LEADS
from schemas.topic_configs import DELETION_ENABLED
from schemas.znode_paths import TOPICS
from schemas.znode_size import ZNODE_LIMIT_REASON


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

    def render(self, **details: Any) -> str:  # noqa: ANN401 - numbers, texts and lists
        """Return the sentence with these details.

        >>> Sentence("removed from the ISR: {gone:ids}; broker {leader} leads").render(gone=[1, 2], leader=3)
        'removed from the ISR: 1, 2; broker 3 leads'
        """
        for name in self._lists:
            details[name] = ", ".join(map(str, details[name]))
        return self._plain.format(**details)

    def matches(self, text: str) -> bool:
        """Return whether a text is the sentence with some details.

        >>> Sentence("{topic} has {count} partitions").matches("a.b has 2 partitions")
        True
        """
        pattern = (re.escape(before) + ".*" * (name is not None) for before, name, _ in self.parts())
        return re.fullmatch("".join(pattern), text, re.DOTALL) is not None


# subjects of events and of failure scenarios
BROKER: Final = Sentence("broker {broker}")
BROKER_PAIR: Final = Sentence("brokers {one}+{other}")
RACK: Final = Sentence("rack {rack}")
PARTITION: Final = Sentence("{topic}-{partition}")

# any rule
QUARANTINED: Final = Sentence("it is in quarantine")
DELETION_REQUESTED: Final = Sentence("its topic is queued for deletion")
NO_STATE: Final = Sentence("it has no state znode yet")
FAILED_LOG_DIRS: Final = Sentence("; failed log dir on broker {failed:ids} (error 56)")
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
NEW_TOPIC: Final = Sentence("new topic")
ADDED_PARTITION: Final = Sentence("added partition")
NO_STATE_YET: Final = Sentence("no state yet")
FIRST_LEADER: Final = Sentence("{what}: first live replica leads, live replicas are in sync")
NO_REPLICA_ALIVE: Final = Sentence("no replica is live: {replicas:ids}")
ISR_EMPTY: Final = Sentence("no replica is in sync: the ISR is empty")
ISR_CANNOT_LEAD: Final = Sentence("no in-sync replica can lead: ISR {isr:ids}")
ALIVE_NOT_ELECTABLE: Final = Sentence("; live but cannot be elected: {survivors:ids}")
ISR_GONE: Final = Sentence("no in-sync replica is live: ISR {gone:ids}")
ISR_SHRINKS: Final = Sentence("removed from the ISR: {gone:ids}")
NO_LEADER: Final = Sentence("no leader")
LEADERS_LOG_DIR_FAILED: Final = Sentence("the log dir of broker {leader} failed")
LEADER_GONE: Final = Sentence("broker {leader} is not live")
UNCLEAN_ELECTED: Final = Sentence("; unclean election of {leader} may lose data")
IN_SYNC_ELECTED: Final = Sentence("; first live in-sync replica is {leader}")
EVEN_LEADERS_ELECTED: Final = Sentence("; in-sync replica {leader} evens out leaders")

# elections of the preferred replica
UNKNOWN_IN_SNAPSHOT: Final = Sentence("no such partition in the snapshot")
PREFERRED_ELECTED: Final = Sentence("preferred replica {preferred} is live and in the ISR")
LEADER_IN_QUARANTINE: Final = Sentence("its leader {leader} is live, but its registration is in quarantine")
ALREADY_PREFERRED: Final = Sentence("already led by its preferred replica {preferred}")
PREFERRED_LEADS_DEAD: Final = Sentence(", which is not live")
PREFERRED_DRAINED: Final = Sentence("preferred replica {preferred} is drained")
PREFERRED_LOG_DIR_FAILED: Final = Sentence(
    "the log dir of preferred replica {preferred} failed: it answered with error 56"
)
PREFERRED_NOT_ALIVE: Final = Sentence("preferred replica {preferred} is not live")
PREFERRED_NOT_IN_ISR: Final = Sentence("preferred replica {preferred} is not in the ISR")

# controlled shutdowns and drains
DRAINED: Final = Sentence("drained: {brokers:ids}")
LEAVES_ISR: Final = Sentence("; out of the ISR")
NOT_IN_ISR: Final = Sentence("; not in the ISR")
ONLY_REPLICA: Final = Sentence("its only replica is {replicas:ids}")
NO_OTHER_CAN_LEAD: Final = Sentence("no other in-sync replica can lead: ISR {isr:ids}")
LEADER_NOT_ALIVE: Final = Sentence("its leader {leader} is not live: elect another one first")
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
    "it depends on broker {uncertain:ids}, which is registered, but not known to be live"
)


# steps of a reassignment
UNKNOWN_PARTITION: Final = Sentence("no such partition")
INVALID_TARGET: Final = Sentence("requested replicas [{requested:ids}]: expected broker ids without duplicates")
ALREADY_ASSIGNED: Final = Sentence("partition is already assigned as requested")
TARGET_NOT_ALIVE: Final = Sentence("not live: {not_live:ids}; the request waits for them")
NO_LEADER_YET: Final = Sentence("it has no leader yet")
NO_LIVE_LEADER: Final = Sentence("it has no live leader in its ISR")
WAITS_FOR_BROKER: Final = Sentence("{lagging:ids} of the target not in the ISR yet; not live: {dead:ids}")
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
STEP_WHY: Final = Sentence("; {why}")
UNDRAINED: Final = Sentence("no longer drained")
WHY_REORDERED: Final = Sentence("{why}: order of replicas changes, no data moves")
WHY_ELECTED: Final = Sentence("{why}: first in sync is {leader}")
RETURNS_TO_DEAD: Final = Sentence("going back adds brokers that are not live: {dead:ids}")
RETURNS_TO_DRAINED: Final = Sentence("going back adds brokers that are drained: {drained:ids}")
ELECTED_AFTER_MOVES: Final = Sentence("the first replica becomes leader when all replicas are in sync")
DRAINED_PARTITION_GONE: Final = Sentence("the partition that was drained is gone")
CHANGED_SINCE_DRAIN: Final = Sentence("its replicas are {replicas:ids}; after the drain they were {made:ids}")
ORDER_RESTORED: Final = Sentence("its replica order is already restored")
NO_LONGER_DRAINED: Final = Sentence("no longer drained, and not in the ISR: {out:ids}")
NO_LEADER_TO_FOLLOW: Final = Sentence("it has no live leader to follow")

# placements: why a partition moves, and why brokers stay uneven
PLACED: Final = Sentence("{rules}: {moves}")
WITH_BYTES: Final = Sentence("{rules} with {bytes} bytes")
FACTOR: Final = Sentence("replication factor {before} → {after}")
REPLACES: Final = Sentence("replaces {source} by {target}")
EMPTIES: Final = Sentence("empties {source}")
MORE_RACKS: Final = Sentence("racks {before} → {after}")
LESS_CROWDED: Final = Sentence("most in one rack {before} → {after}")
AS_GIVEN: Final = Sentence("as given")
EVENS_OUT_REPLICAS: Final = Sentence("evens out replicas")
EVENS_OUT_LOADS: Final = Sentence("evens out loads")
EVENS_OUT_PREFERRED: Final = Sentence("evens out leaders")
PREFERRED_CHANGES: Final = Sentence("preferred leader {before} → {after}")
ORDER_CHANGES: Final = Sentence("order of replicas changes")
LEAST_COPIES: Final = Sentence("every plan copies at least {replicas}")
REQUIRED_COPIES: Final = Sentence(
    "every plan copies at least {replicas}: those that leave a broker, are added, or widen a rack"
)
SHARE_LACKING: Final = Sentence("{share} lack {count}")
AS_EVEN: Final = Sentence("fewer copies cannot give {brokers} brokers {least} to {most} replicas each")
EVEN_SHARE: Final = Sentence("{brokers} {replicas}, {share} each and one more on {over}; {recipients}")
HAVE_FEWER: Final = Sentence("those that have fewer")
MAY_RECEIVE: Final = Sentence("those that may take replicas")
GIVEN_COPIES: Final = Sentence("{replicas} given to brokers that do not hold them")
MAX_MOVES_SPENT: Final = Sentence("--max-moves {max_moves} leaves {replicas} where they may not stay")
ONLY_REQUIRED_MOVES: Final = Sentence("only required moves are planned; use --rebalance to even out the rest")
NONE_MAY_CHANGE: Final = Sentence("no partition may change")
CANNOT_GIVE: Final = Sentence("{brokers} cannot give to others: {rules}")
CANNOT_TAKE: Final = Sentence("{brokers} cannot take from others: {rules}")
NO_HELPFUL_MOVES: Final = Sentence("--max-moves {max_moves} allows no more copies that would help")
OUTSIDE_BAND: Final = Sentence("bytes on {brokers} differ from the mean by more than {percent} %, and no move helps")
BUDGET_SPENT: Final = Sentence(
    "loads of {brokers} differ from {share} by more than {percent} %, and no change within the budget was found to help"
)
DISKS_ABOVE: Final = Sentence("disks of {brokers} stay above {percent} % of capacity, and no change was found to help")
LOADS_OUTSIDE: Final = Sentence(
    "loads of {brokers} differ from {share} by more than {percent} %, and no {change} was found to help"
)
SAME_SHARE: Final = Sentence("the mean")
SHARE_BY_CAPACITY: Final = Sentence("their share by capacity")
UP_TO_SHARE: Final = Sentence("only {brokers} may take replicas, up to an even share; --rebalance balances all brokers")
ONLY_THESE_RECEIVE: Final = Sentence("only {brokers} may take replicas")
BOUND_REPLICAS: Final = Sentence("of {count} replicas {bound}")
IN_FIXED: Final = Sentence("{count} in partitions that may not change")
ON_EACH: Final = Sentence("{count} in partitions that have a replica on each of the others")
IN_SYNC_IN_LAGGING: Final = Sentence("{count} in sync in partitions that lack one")
LOSES_RACK: Final = Sentence("{count} in partitions that would lose a rack")
LOSES_OR_CROWDS_RACK: Final = Sentence("{count} in partitions that would lose a rack or crowd one")

WOULD_HAVE: Final = Sentence("it would have {fault}: {advice}")
MORE_REPLICAS: Final = Sentence("more replicas than the {brokers} that may hold them")
FEWER_RACKS_THAN_NOW: Final = Sentence("fewer racks than now")

# targets from an earlier snapshot
GONE_SINCE: Final = Sentence("it is gone since snapshot {snapshot}")
UNKNOWN_THEN: Final = Sentence("snapshot {snapshot} does not know it")
CREATED_AGAIN: Final = Sentence("its topic was deleted and created again after {snapshot}")
MOVED_THEN: Final = Sentence("snapshot {snapshot} was taken during its reassignment, so it has no target to restore")

# faults of targets
UNKNOWN_TAKE_SNAPSHOT: Final = Sentence("no such partition in the snapshot: take a new one if it is newer")
NO_REPLICAS: Final = Sentence("no replicas")
FACTOR_CHANGES: Final = Sentence("replication factor {now} → {then}: not requested")
INTERNAL_FEWER: Final = Sentence("an internal topic would have fewer replicas: {now} → {then}")
DUPLICATE_BROKER: Final = Sentence("names a broker twice: {target:ids}")
ADDS_DEAD: Final = Sentence("adds brokers not live in the snapshot: {dead:ids}")
MIN_ISR_UNREACHABLE: Final = Sentence("{count} {noun} can never reach min.insync.replicas={min_isr}")
RACK_CROWDED: Final = Sentence("most replicas in one rack {now} → {then}: [{racks}]; the minimum is {needed}")
RACKS_LOST: Final = Sentence("racks {now} → {then}: [{racks}]")
NAMED_TWICE: Final = Sentence("the plan names this partition {times} times")
ZNODE_TOO_LARGE: Final = Sentence(
    f"{TOPICS}/{{topic}} would take {{size}} bytes while this runs, more than {{limit}}: "
    f"{ZNODE_LIMIT_REASON}; plan the topic in several parts"
)
TOPIC_TOO_LARGE: Final = Sentence(
    f"{TOPICS}/{{topic}} would take about {{size}} bytes, more than {{limit}}: {ZNODE_LIMIT_REASON}; "
    "ask for fewer partitions or replicas"
)
INTERMEDIATE_FAULT: Final = Sentence("on the way, after wave {wave}: {fault}")

# offline partitions
LAST_STATE: Final = Sentence(
    "its state znode is gone: snapshot {seen} showed leader {leader}, ISR {isr:ids}, leader epoch {leader_epoch}"
)
STATE_VANISHED: Final = Sentence("{last_state}; `surveyor plan recover` offers leaders for it, with the evidence")
NOT_OFFLINE: Final = Sentence("it has a leader, or no state yet, or its topic is queued for deletion")
CANDIDATE: Final = Sentence("{broker} ({history})")
KAFKAS_CHOICE: Final = Sentence("; Kafka's choice")
LAST_IN_SYNC: Final = Sentence("in sync until snapshot {snapshot}, leader epochs since: {epochs}")
NEVER_IN_SYNC: Final = Sentence("never seen in sync")
LOG_SIZE: Final = Sentence(", log of {size} bytes")
CAUSE_AND_RISK: Final = Sentence("{cause}; {risk}")
UNCLEAN_MAY_LOSE: Final = Sentence("unclean election may lose {lost}; ranked: {ranked}")
LOSES_SINCE: Final = Sentence("what was acknowledged after {since} UTC")
LOSES_ALL: Final = Sentence("all that was acknowledged")
HOLDERS_OUTSIDE: Final = Sentence("; live and in the ISR, but not assigned, so it cannot lead: {outside:ids}")
NOT_ALLOWED: Final = Sentence("; not allowed")
CHECK_LOGS: Final = Sentence("; not allowed: check the logs of its brokers, then name it with --partition")
RESTART_BROKERS: Final = Sentence(
    "; restart the partition's brokers afterwards; until then they ignore the new state, because its version is lower"
)
HOLDERS_HIDDEN: Final = Sentence("live but cannot be elected, and may hold the data: {hidden:ids}")
NONE_ELECTABLE: Final = Sentence("no replica is live and may be elected: {replicas:ids}")

# requests and reassignments that make no progress
NO_SUCH_PARTITION: Final = Sentence("there is no such partition")
NOT_A_BROKER_LIST: Final = Sentence("[{requested:ids}] is not a list of distinct brokers")
NOT_ALIVE: Final = Sentence("not live: {dead}")
ISR_NOT_ALIVE: Final = Sentence("no replica in its ISR [{isr:ids}] is live")

# cancellations
COPIES_LOST: Final = Sentence("the copies on [{adding:ids}] would be deleted")
ISR_UNKNOWN: Final = Sentence("its ISR is not known")
ISR_KNOWN: Final = Sentence("its ISR is [{isr:ids}]")
NO_ORIGIN_IN_SYNC: Final = Sentence(
    "no original replica of [{origin:ids}] is live and in sync ({isr}): {lost}, and no replica could lead it"
)
ORIGIN_NOT_ALIVE: Final = Sentence(
    "original replicas [{dead:ids}] are not live: {lost}, and only [{live:ids}] would remain live"
)

# requests to Kafka's controller
NOT_REQUESTED: Final = Sentence("not requested: {cause}")

# writes to configs, and to ZooKeeper as controller
WRITTEN: Final = Sentence("written")
FENCED: Final = Sentence("another controller took over")
SESSION_LOST: Final = Sentence("the ZooKeeper session was lost; commit again")

# rollbacks
PARTITION_GONE: Final = Sentence("the partition is gone")
STATE_UNREAD: Final = Sentence("its state or its topic is not understood")
NO_LEADER_AND_ISR: Final = Sentence("it has no leader and ISR yet")
MOVE: Final = Sentence("to [{target:ids}], adding [{adding:ids}], removing [{removing:ids}]")
MOVES_BACK: Final = Sentence("it is already moving back: {move}")
MOVED_BY_ANOTHER: Final = Sentence("it is being moved, and not by this plan: {move}")
MOVED_SINCE: Final = Sentence(
    "its replicas are now [{replicas:ids}]: another client has moved it since; use `surveyor plan reassign` to move it"
)
ELECT_FIRST: Final = Sentence(
    "no live leader in its ISR (leader {leader}, ISR [{isr:ids}]); elect a leader first, `surveyor status` shows how"
)
ADDS_NOT_ALIVE: Final = Sentence("[{target:ids}] adds brokers that are not live: {dead:ids}")
ADDS_DRAINED: Final = Sentence("[{target:ids}] adds brokers that are drained: {drained:ids}")
BACK: Final = Sentence("back to {target}{wave}: {moves}{racks}")
BACK_ELECTED: Final = Sentence("back to {target}: preferred replica {preferred} leads again")
UNDOES_WAVE: Final = Sentence(", undoes wave {wave}")
FEWER_RACKS: Final = Sentence("; racks {before} → {after}")
MORE_IN_RACK: Final = Sentence("; most in one rack {before} → {after}")


# transitions
ILLEGAL_CHANGE: Final = Sentence("it is {state} and would be {after}; {allowed}")
ALLOWED_TRANSITION: Final = Sentence("{action} leads to {state} from {starts} only")
ILLEGAL_REMOVAL: Final = Sentence("its replica on broker {broker} is {state}; {after} follows {starts} only")

# what an earlier state does not explain
DIFFERENCE: Final = Sentence("{name} {before}→{after}")

# changes and operations that are stale or done
FOUND_APPLIED: Final = Sentence("found applied")
OTHER_TOPIC_EXISTS: Final = Sentence("topic {topic} exists and is not the one planned")
NOT_UNDERSTOOD: Final = Sentence("{path} is not understood ({fault})")
NOT_DECODED: Final = Sentence("{path}: {fault}")
OTHER_VERSION: Final = Sentence("{path} is at version {version}, planned at {planned}")
STATE_NOW: Final = Sentence("leader {leader}, ISR [{isr:ids}], leader epoch {leader_epoch}")
BROKER_BACK: Final = Sentence("broker {broker} is live again")
REPLICAS_NOW: Final = Sentence("its replicas are now [{replicas:ids}]")
CONFIG_DIFFERS: Final = Sentence("topic {topic}: {name} is {found}, planned {planned}")
PARTITIONS_DIFFER: Final = Sentence("topic {topic} has {found} partitions, planned {planned}")
PARTITION_EXISTS: Final = Sentence("partition {partition} exists, on [{replicas:ids}]")
NOT_THE_TOPIC_TO_DELETE: Final = Sentence("{cause}; the topic of this name is not the one that the plan deletes")
TOPIC_RECREATED: Final = Sentence("{topic} was deleted and created again")
TOPIC_ID_LOST: Final = Sentence(
    "{topic} has lost its topic id {planned}: restore the id in its znode before another controller starts and "
    "assigns a new one"
)
WITH_STATE: Final = Sentence("{reason}: {state}")

# how far a change has come
NO_STATE_NOW: Final = Sentence("no state")
REPLICAS: Final = Sentence("replicas [{replicas:ids}]")


# topics that a plan names
TOPIC_NOT_UNDERSTOOD: Final = Sentence("the topic is not understood; {command}")

# what a plan does not cover

# deletions of topics
UNKNOWN_TOPIC: Final = Sentence("topic does not exist")
DELETION_DISABLED: Final = Sentence(f"{DELETION_ENABLED} is false")
TOPIC_MOVES: Final = Sentence("a partition of the topic is being moved")
ELECTION_REQUESTED: Final = Sentence("a preferred election is requested")
REPLICAS_UNREACHABLE: Final = Sentence("unreachable replicas on brokers {brokers:ids}")

# requests of admin clients to the resident controller
BROKERS_NOT_ALIVE: Final = Sentence("brokers [{dead:ids}] are not live")


def other_topic(topic: str, planned: str | None, now: str | None) -> str:
    """Return why a topic is not the planned one: it was created again, or it lost its topic id.

    >>> other_topic("topic t", "a", "b")
    'topic t was deleted and created again'
    """
    if planned is not None and now is None:
        return TOPIC_ID_LOST.render(topic=topic, planned=planned)
    return TOPIC_RECREATED.render(topic=topic)
