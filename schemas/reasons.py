"""Sentences of changes and rejections: one template each, for the rules in plain Python and the transforms on Spark.

A rule gives a code and details; the reason of a row is the sentence of that code with these details. A template names
its details in braces; `:ids` marks a list of broker ids. `planner.columns.sentences` fills them in on Spark.
"""

import re
from collections.abc import Iterator
from string import Formatter
from typing import Any, Final

from schemas.broker_configs import AUTHORIZER, CREATE_POLICY
from schemas.text import DRAINED_LEADS
from schemas.topic_configs import DELETION_ENABLED, TIERED
from schemas.znode_paths import TOPICS, ZNODE_LIMIT_REASON


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
LEADER_RESTARTED: Final = Sentence("its leader has restarted, and no other replica is in sync")
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

# the order of restarts
IS_DOWN: Final = Sentence("it is down: start it before another broker stops")
CONTROLLER_LAST: Final = Sentence("it is the controller, which comes last")
RACK_OF_ITS_OWN: Final = Sentence("a rack of its own")
HARMS_WITH_FULL_ISRS: Final = Sentence("; even with full ISRs: {effects}")
HARMS_NOW: Final = Sentence("; with the present ISRs: {effects}")
LOSES_QUORUM: Final = Sentence("; the quorum loses its majority")

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
EVENS_OUT_LEADERS: Final = Sentence("evens out leaders: the first replica becomes leader when all replicas are in sync")
DRAINED_PARTITION_GONE: Final = Sentence("the partition that was drained is gone")
CHANGED_SINCE_DRAIN: Final = Sentence("its replicas are {replicas:ids}; after the drain they were {made:ids}")
ORDER_RESTORED: Final = Sentence("its replica order is already restored")
NO_LONGER_DRAINED: Final = Sentence("no longer drained, and not in the ISR: {out:ids}")
NO_LEADER_TO_FOLLOW: Final = Sentence("it has no live leader to follow")

# placements: why a partition moves, and why brokers stay uneven
PLACED: Final = Sentence("{rules}: {moves}")
FACTOR: Final = Sentence("replication factor {before} → {after}")
REPLACES: Final = Sentence("replaces {source} by {target}")
EMPTIES: Final = Sentence("empties {source}")
MORE_RACKS: Final = Sentence("racks {before} → {after}")
LESS_CROWDED: Final = Sentence("most in one rack {before} → {after}")
AS_GIVEN: Final = Sentence("as given")
EVENS_OUT_REPLICAS: Final = Sentence("evens out replicas")
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
HELD_BY_DEAD: Final = Sentence(
    "a broker that is not live, or not understood, holds a replica; --remove-brokers or --replace moves it away"
)

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
REQUEST_TOO_LARGE: Final = Sentence(
    f"it would take {{size}} bytes, more than {{limit}}: {ZNODE_LIMIT_REASON}; move fewer at once"
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

# cancellations that were requested, or were not
PLAN_CLOSED: Final = Sentence("closed; it was {status}")
CONTINUES: Final = Sentence("continues: {risk}")
LEFT_ALONE: Final = Sentence("left alone: {state}")
MOVES_BACK_NOW: Final = Sentence("requested, and moving back: {state}")
STILL_MOVES: Final = Sentence("it still moves, adding [{adding:ids}], removing [{removing:ids}]")
REQUEST_EXISTS: Final = Sentence("its request for [{requested:ids}] still exists")
REQUEST_REMOVED: Final = Sentence("its request was removed")
ORDER_MAY_DIFFER: Final = Sentence("{state}; to change their order: surveyor plan reassign")
CANCELLATION_KILLED: Final = Sentence("the cancellation that requested it was killed; {state}")
UNREAD_NOW: Final = Sentence("not understood: {fault}")
STRANDED: Final = Sentence(
    "its in-sync replicas were removed while it was cancelled, so no replica can lead it: {state}; start its brokers, "
    "or recover it"
)
COMPLETE_BEFORE: Final = Sentence("it was complete before it could be cancelled: {state}; to move it back: {command}")
CHANGED_BY_ANOTHER: Final = Sentence("another client changed it: {state}; to move it back: surveyor plan reassign")

# requests to Kafka's controller, and their answers
NO_ANSWER: Final = Sentence("no answer came ({error})")
ANSWER_WAS: Final = Sentence("the answer was {answer}")
UNNAMED: Final = Sentence("the controller's answer did not name it")
NO_ANSWER_YET: Final = Sentence("{answer}; {state}")
CLUSTER_UNREAD: Final = Sentence("{answer}, and the cluster could not be read: {error}")
NOT_REQUESTED: Final = Sentence("not requested: {cause}")
EARLIER_REQUEST: Final = Sentence("{answer} to an earlier request")
INTERRUPTED_BY: Final = Sentence("interrupted: {error}")
NOT_VISIBLE: Final = Sentence("accepted, but not visible yet: {state}")
REFUSED: Final = Sentence("the controller refused: {cause}")
ACCEPTED: Final = Sentence("asked and accepted")
LED_BY_PREFERRED: Final = Sentence("led by its preferred replica already")
HAS_LEADER: Final = Sentence("it has a leader already")
APPLIED_ANYWAY: Final = Sentence("found applied; {answer}")
PERHAPS_REPEATED: Final = Sentence(
    "{answer}, but the client may have sent the request twice; the cluster could not be read: {error}"
)
LEFT_TO_CONTROLLER: Final = Sentence(
    "the controller elects in-sync replicas itself; it was not seen to elect the planned leader"
)
LEASE_SLOW: Final = Sentence("each check of the lease took more than {seconds} s")
INTERRUPTED: Final = Sentence("interrupted before it was answered")
REQUEST_WITHDRAWN: Final = Sentence("the controller removed the request, and {state}")
LED_BY: Final = Sentence("the leader is {leader}")
UNREAD_AFTER_REQUEST: Final = Sentence("requested, and the cluster could not be read: {error}")
WAVE_BEFORE: Final = Sentence("its change before wave {wave} was not applied")
TURNED_BACK: Final = Sentence("turned back because the plan was cancelled: {state}")
NO_LONGER_MOVES: Final = Sentence("it was in progress and no longer is: {state}")
STILL_IN_PROGRESS: Final = Sentence("requested, and in progress")
COMMIT_STOPPED: Final = Sentence("the commit stopped before it")

# writes to configs, and to ZooKeeper as controller
CONFIG_ACCEPTED: Final = Sentence("accepted")
CONFIG_NOT_REQUESTED: Final = Sentence("not requested")
CONFIG_NO_ANSWER: Final = Sentence("no answer ({error})")
COMMAND_ENDED: Final = Sentence("the command ended before the answer")
CONFIG_OUTCOME: Final = Sentence("{override}: {outcome}")
WRITTEN: Final = Sentence("written")
FENCED: Final = Sentence("another controller took over")
SESSION_LOST: Final = Sentence("the ZooKeeper session was lost; commit again")
CONNECTION_LOST: Final = Sentence("the connection was lost in each attempt")
OUTCOME_UNKNOWN: Final = Sentence("{fault}; commit again")
LAST_EPOCH_IN_STATE: Final = Sentence(
    "{path} has controller epoch {found}, the last one, and no controller overwrites it; write it again "
    "with zookeeper-shell and an epoch of at most {epoch}, then plan again"
)
LATER_EPOCH_IN_STATE: Final = Sentence(
    "{path} has controller epoch {found}, later than ours, {epoch}, and is not overwritten; plan again"
)
REASSIGNMENT_INCOMPLETE: Final = Sentence("a reassignment of its topic has not been completed")
REPLICAS_DELETED: Final = Sentence("{deleted} of {replicas} replicas are deleted")
NO_TIME_TO_NOTIFY: Final = Sentence("no time was left to notify the brokers; {progress}")
OVER_MAX_HOLD: Final = Sentence("--max-hold {seconds}s is over")
INTERRUPTED_BEFORE: Final = Sentence("interrupted before it")

# controllerships, and what the resident controller removes
TAKEN_OVER: Final = Sentence("controller epoch {epoch}")
TAKEN_OVER_ABOVE: Final = Sentence("controller epoch {epoch}, above {refused}")
TAKEN_OVER_TO_STAY: Final = Sentence("controller epoch {epoch}; until resigned")
SESSION_CLOSED: Final = Sentence("our session is closed; the current controller is unknown: {error}")
NO_SUCCESSOR: Final = Sentence("no broker has become the controller yet: /controller is free for one")
SUCCESSOR: Final = Sentence("broker {controller} is the controller; held for {seconds} s")
ALL_BACK: Final = Sentence("all of it is as in snapshot {snapshot}")
CYCLE_FULL: Final = Sentence("deferred: the cycle had written for {seconds} s")
ASKED_FOR: Final = Sentence("requested replicas [{replicas:ids}]: {outcome}")
ELECTION_DONE: Final = Sentence("the election was attempted")
EMPTY_REQUEST: Final = Sentence("it is empty")
REMOVED_ZNODE: Final = Sentence("{path}: {cause}")
DELETION_CONFIRMED: Final = Sentence("every broker has confirmed it")
RESPONSE_LOST: Final = Sentence("{reason}; the connection was lost before the response arrived")

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
NOT_IN_TARGET: Final = Sentence("{target} does not contain it")
MOVED_IN_TARGET: Final = Sentence("{target} was taken during its reassignment, so it has no target to restore")
NO_REPLICAS_IN_TARGET: Final = Sentence("{target} shows no replicas")
IN_FEWER_RACKS: Final = Sentence("{partitions} in fewer racks than now")
MORE_IN_ONE_RACK: Final = Sentence("{partitions} more replicas in one rack than necessary")
NOT_ASKED_FOR: Final = Sentence("no commit of the plan requested it, so the plan moved nothing here")

# znodes on which Kafka's controller fails
MOVES_WITHOUT_STATE: Final = Sentence(
    "it has a partition that is being reassigned and has no state and no live replica; start one of its brokers"
)
DELETED_WITHOUT_STATE: Final = Sentence(
    "the topic is queued for deletion, and it has a partition that is being reassigned and has no state"
)

# the mode of a commit
MODE_REQUESTED: Final = Sentence("requested by --mode")
BROKER_CONTROLS: Final = Sentence("broker {controller} is the controller")
CONTROLLER_ASKED: Final = Sentence("broker {controller} is the controller; requests are written to /admin")
RESIDENT_ASKED: Final = Sentence("{controller}, is the controller; requests are written to /admin")
RESIDENT_SUBMITTED: Final = Sentence("{controller}, is the controller; the plan is submitted to it")
CONTROLLER_ELECTS: Final = Sentence("the cluster's controller elects live replicas in sync by itself")
NOT_IN_ADMIN_API: Final = Sentence("the Admin API offers no repair of leaders and ISRs: {actions}")
REQUESTS_CARRIED_OUT: Final = Sentence("requests in /admin are carried out by the current controller")
NO_FIRST_LEADERS: Final = Sentence("the Admin API does not elect first leaders of existing partitions")
TIERED_UNCHECKED: Final = Sentence(
    f"only a broker can check {TIERED} against its own configs, and it fails if they do not fit"
)
MOVES_REPLICAS: Final = Sentence("Kafka's controller moves replicas")
NO_BROKER_CONTROLS: Final = Sentence("no broker is the controller")
CONTROLLER_DEAD: Final = Sentence("controller {controller} is not a live broker")
CONTROLLER_UNREACHABLE: Final = Sentence("cannot reach the controller (broker {controller}) at {addresses}")

# transitions
ILLEGAL_CHANGE: Final = Sentence("it is {state} and would be {after}; {allowed}")
ALLOWED_TRANSITION: Final = Sentence("{action} leads to {state} from {starts} only")
ILLEGAL_REMOVAL: Final = Sentence("its replica on broker {broker} is {state}; {after} follows {starts} only")

# what an earlier state does not explain
DIFFERENCE: Final = Sentence("{name} {before}→{after}")

# changes and operations that are stale or done
FOUND_APPLIED: Final = Sentence("found applied")
FOUND_IN_PROGRESS: Final = Sentence("found in progress")
FOUND_GONE: Final = Sentence("found gone")
FOUND_QUEUED: Final = Sentence("found queued for deletion")
FOUND_WITHDRAWN: Final = Sentence("found withdrawn")
PASSED_WAVE: Final = Sentence("found applied: its partition has reached wave {wave}")
TOPIC_QUEUED: Final = Sentence("topic {topic} is queued for deletion")
TOPIC_GONE: Final = Sentence("topic {topic} is gone")
OTHER_TOPIC_EXISTS: Final = Sentence("topic {topic} exists and is not the one planned")
NOT_UNDERSTOOD: Final = Sentence("{path} is not understood ({fault})")
NOT_DECODED: Final = Sentence("{path}: {fault}")
PARTLY_UNDERSTOOD: Final = Sentence("{path} is not written, because a part of it is not understood ({fault})")
OTHER_VERSION: Final = Sentence("{path} is at version {version}, planned at {planned}")
STATE_NOW: Final = Sentence("leader {leader}, ISR [{isr:ids}], leader epoch {leader_epoch}")
BROKER_GONE: Final = Sentence("broker {broker} is not live")
BROKER_RESTARTED: Final = Sentence("broker {broker} registered again since the snapshot")
BROKER_BACK: Final = Sentence("broker {broker} is live again")
RACK_CHANGED: Final = Sentence("broker {broker} is in rack {rack} and was in rack {planned} when the plan was made")
DRAINED_SINCE: Final = Sentence("broker {broker} was drained after the plan was made")
OTHER_CHOICE: Final = Sentence("the controller would elect {chosen}, and {planned} was planned")
CHANGED_SINCE_PLAN: Final = Sentence("changed since the plan: {differences}")
MOVE_MAY_LOSE: Final = Sentence(
    "no live leader is in its ISR ({state}): moving it may lose its records; elect a leader first, `surveyor status` "
    "shows how"
)
REPLICAS_NOW: Final = Sentence("its replicas are now [{replicas:ids}]")
NAMED_PARTITION_GONE: Final = Sentence("{partition} is gone")
LEADER_CHANGED: Final = Sentence("the leader is no longer {leader}")
CONFIG_DIFFERS: Final = Sentence("topic {topic}: {name} is {found}, planned {planned}")
PARTITIONS_DIFFER: Final = Sentence("topic {topic} has {found} partitions, planned {planned}")
ISR_REJOINED: Final = Sentence("broker {broker} is in the ISR again: {state}")
PARTITION_EXISTS: Final = Sentence("partition {partition} exists, on [{replicas:ids}]")
OTHER_TOPIC_ACCEPTED: Final = Sentence("accepted for another topic: {cause}")
ACCEPTED_UNREAD: Final = Sentence("accepted, and not understood when it was read back")
ACCEPTED_CHANGED: Final = Sentence("accepted; changed at the same time: {differences}")
OPERATION_UNREAD: Final = Sentence("topic {topic} is not understood: {fault}")
ITS_TOPIC_GONE: Final = Sentence("the topic is gone")
ITS_TOPIC_EXISTS: Final = Sentence("there is such a topic now")
ITS_TOPIC_QUEUED: Final = Sentence("the topic is queued for deletion")
NO_LONGER_QUEUED: Final = Sentence("the topic is no longer queued for deletion")
CONFIG_ALTERED: Final = Sentence("{name} is now {value}: another client altered it since the snapshot")
CONFIGS_CONFLICT: Final = Sentence("{conflict}: another client altered one of them since the snapshot")
NOT_THE_TOPIC_TO_DELETE: Final = Sentence("{cause}; the topic of this name is not the one that the plan deletes")
PARTITIONS_ADDED: Final = Sentence("partitions were added since its replicas were deleted")
CONTROLLER_CHANGED: Final = Sentence("another controller has taken over, with epoch {epoch}")
CONTROLLER_BETWEEN: Final = Sentence("another controller has taken over since its replicas were deleted")
TOPIC_RECREATED: Final = Sentence("{topic} was deleted and created again")
TOPIC_ID_LOST: Final = Sentence(
    "{topic} has lost its topic id {planned}: restore the id in its znode before another controller starts and "
    "assigns a new one"
)
WITH_STATE: Final = Sentence("{reason}: {state}")

# how far a change has come
NO_STATE_NOW: Final = Sentence("no state")
LEADER_NOW: Final = Sentence("leader {leader}, ISR [{isr:ids}]")
REPLICAS: Final = Sentence("replicas [{replicas:ids}]")
REPLICAS_MOVING: Final = Sentence("replicas [{replicas:ids}], adding [{adding:ids}], removing [{removing:ids}]")
REPLICAS_PENDING: Final = Sentence("{state}: its replicas are not there yet")
REPLICAS_LAG: Final = Sentence("replicas [{replicas:ids}], not yet in sync [{lagging:ids}]")
LAGGING: Final = Sentence("not yet in sync: [{lagging:ids}]")
REQUESTED: Final = Sentence("requested")
UNCHANGED: Final = Sentence("unchanged since the plan was made")
QUEUED_AND_EXISTS: Final = Sentence("queued for deletion, and still exists")
TOPIC_UNREAD: Final = Sentence("; its znode is not understood ({fault})")
DELETION_WAITS: Final = Sentence("; it waits for {noun} {absent}, not live: start it")

# configs of topics
CONFIG_NOT_SET: Final = Sentence("{name} is not set on this topic, so there is nothing to delete")

# topics that a plan names
TOPIC_NOT_IN_SNAPSHOT: Final = Sentence("the topic is not in snapshot {snapshot}")
TOPIC_NOT_UNDERSTOOD: Final = Sentence("the topic is not understood; {command}")
QUEUED_ALREADY: Final = Sentence("queued for deletion already")

# what a plan does not cover
TOPICS_HIDDEN: Final = Sentence("topics that this client may not describe may be missing")
NAMES_NOT_UNDERSTOOD: Final = Sentence("{counted} {verb} not understood ({names})")
MAY_STILL_LEAD: Final = Sentence("{brokers} may still lead {them}")
MAY_STILL_HOLD: Final = Sentence("{brokers} may still hold replicas of {them}")
NOT_COUNTED_OR_MOVED: Final = Sentence("no replica of {them} is counted or moved")
NOTHING_PLANNED: Final = Sentence("nothing is planned for {them}")
NOT_COVERED: Final = Sentence("{unread}: {meaning}; {command}")

# deletions of topics
UNKNOWN_TOPIC: Final = Sentence("topic does not exist")
DELETION_DISABLED: Final = Sentence(f"{DELETION_ENABLED} is false")
TOPIC_MOVES: Final = Sentence("a partition of the topic is being moved")
ELECTION_REQUESTED: Final = Sentence("a preferred election is requested")
REPLICAS_UNREACHABLE: Final = Sentence("unreachable replicas on brokers {brokers:ids}")

# requests of admin clients to the resident controller
NOT_HOSTED: Final = Sentence("This server does not host this topic-partition.")
NOT_COMPLETE_IN_TIME: Final = Sentence(
    "not complete in time; Surveyor continues with it, and `surveyor status` shows what it waits for"
)
ZNODE_CHANGED: Final = Sentence("its znode changed during each attempt to write it; ask again")
ADMIN_REQUEST_WAITS: Final = Sentence("the request waits; `surveyor status` shows for what")
USE_COMMAND: Final = Sentence("Surveyor is the controller, and {reason}: use `surveyor {command}`")
SERVES_BROKERS_ONLY: Final = Sentence("at a listener with {protocol} it serves brokers only")
SERVES_NO_CLIENTS: Final = Sentence(
    "it serves no clients at this address now, because of the security settings of brokers (see its log)"
)
AUTHORIZER_UNASKED: Final = Sentence(f"it cannot ask the brokers' authorizer ({AUTHORIZER}={{authorizer}})")
AUTHORIZER_UNKNOWN: Final = Sentence(
    "it cannot ask the brokers' authorizer (no broker has reported whether it has one)"
)
LOGIN_UNVERIFIED: Final = Sentence("it cannot verify the password or token of this user, as brokers can")
NO_SCRAM_CHANGES: Final = Sentence(
    "Surveyor is the controller, and does not change users. Stop it for that time, or change them with "
    "`kafka-configs --zookeeper`"
)
NO_FEATURES: Final = Sentence("Surveyor is the controller, and finalizes no features; brokers of ZooKeeper have none")
NO_CONTROLLER_SETTINGS: Final = Sentence("this is Surveyor, the controller; it has no settings")
OTHER_RESOURCES: Final = Sentence("ask about other resources without the controller's settings")
TOPIC_NAMED_TWICE: Final = Sentence("{topic} is named {times} times")
TOPIC_EXISTS: Final = Sentence("topic {topic} exists")
QUEUED_TOPIC_EXISTS: Final = Sentence("topic {topic} exists and is queued for deletion")
TOPIC_COLLIDES: Final = Sentence("topic {topic} collides with {other}: '.' and '_' are one in metric names")
METADATA_LOG: Final = Sentence("{topic} is KRaft's own log")
POLICY_UNASKED: Final = Sentence(
    f"{CREATE_POLICY} is {{policy}}, which only brokers can ask: use `surveyor plan assign`"
)
NULL_VALUE: Final = Sentence("{name}: null is not allowed")
NO_PARTITIONS: Final = Sentence("{count} partitions: at least 1 is needed")
TOO_MANY_PARTITIONS: Final = Sentence(
    "{count} partitions: a request may add {limit} partitions in total; {left} remain"
)
PARTITIONS_EXIST: Final = Sentence("{topic} has {count} partitions already")
TOPIC_REASSIGNED: Final = Sentence("partitions of {topic} are being reassigned; wait until that is complete")
FACTOR_UNREACHABLE: Final = Sentence("replication factor {factor}: {live} brokers are live")
ASSIGNED_TWICE: Final = Sentence("give either assignments, or the number of partitions and the replication factor")
NOT_CONSECUTIVE: Final = Sentence("partitions [{partitions:ids}]: expected each from 0 on, once")
ASSIGNMENTS_DIFFER: Final = Sentence("{assignments} assignments for {partitions} new partitions")
NOT_OF_FACTOR: Final = Sentence("[{replicas:ids}]: expected {factor} broker ids without duplicates")
NOT_BROKER_IDS: Final = Sentence("[{replicas:ids}]: expected broker ids without duplicates")
BROKERS_NOT_ALIVE: Final = Sentence("brokers [{dead:ids}] are not live")
ALIVE_ARE: Final = Sentence("; alive are {live:ids}")
CANNOT_BE_DECODED: Final = Sentence("{path} cannot be decoded: {fault}")
NOT_BEING_REASSIGNED: Final = Sentence("no reassignment of this partition is in progress")
ELECTION_NOT_NEEDED: Final = Sentence("Leader election not needed.")
LED_ALREADY: Final = Sentence("it has a leader")
RECOVER_INSTEAD: Final = Sentence(
    "an unclean election may lose acknowledged records: `surveyor plan recover` shows the evidence first"
)
PREFERRED_UNAVAILABLE: Final = Sentence("the preferred replica is not live or not in sync")


def other_topic(topic: str, planned: str | None, now: str | None) -> str:
    """Return why a topic is not the planned one: it was created again, or it lost its topic id.

    >>> other_topic("topic t", "a", "b")
    'topic t was deleted and created again'
    """
    if planned is not None and now is None:
        return TOPIC_ID_LOST.render(topic=topic, planned=planned)
    return TOPIC_RECREATED.render(topic=topic)
