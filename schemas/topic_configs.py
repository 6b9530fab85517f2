"""The topic configs of Kafka 2.4 to 3.9, their types and bounds: the content allowed in /config/topics/T.

A broker parses every value when it starts, and stops on one that it cannot parse (ConfigException). Configs written
without Kafka's controller are checked against this table first. Sources are `LogConfig.configDefCopy()` of 3.9.2 and
the same definitions at the tags 2.4.1 to 3.9.0 of apache/kafka. If releases differ, the narrower bounds apply, which
every release accepts (since 3.3 flush.messages is at least 1). One bound is narrower than the parser's: if
segment.index.bytes is less than an entry of the time index, 12 bytes, no log can be opened (`AbstractIndex`). A release
ignores names that it does not know. Values are trimmed as Java does it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final

INT: Final = 2**31 - 1
LONG: Final = 2**63 - 1

POLICY: Final = "cleanup.policy"
COMPRESSION: Final = "compression.type"
AS_PRODUCED: Final = "producer"
"""The compression type of topics whose batches are stored as producers send them."""
MIN_ISR: Final = "min.insync.replicas"
DEFAULT_MIN_ISR: Final = 1
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
DELETION_ENABLED: Final = "delete.topic.enable"
"""A broker config, not a topic config: whether topics are deleted at all."""

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
"""Broker configs, not topic configs: bytes per second of throttled replicas (KIP-73)."""

LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
"""The throttled replicas of a topic, as PARTITION:BROKER,... or *."""

TIERED: Final = "remote.storage.enable"
"""Tiered storage of a topic; which of its values are allowed together depends on the brokers' configs."""

_JAVA_BLANKS: Final = "".join(map(chr, range(ord(" ") + 1)))
_MAX_DIGITS: Final = 1000
"""Python does not parse numbers of some thousand digits; Kafka accepts at most 19."""
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]+")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_REPLICAS: Final = re.compile(r"|\*|[0-9]{1,9}:[0-9]{1,9}(,[0-9]{1,9}:[0-9]{1,9})*")
_FORMATS: Final = re.compile(
    r"0\.(8\.[012]|9\.0|10\.0(-IV[01])?|10\.1(-IV[012])?|10\.2(-IV0)?|11\.0(-IV[012])?)"
    r"|(1\.[01]|2\.0)(-IV0)?|2\.0-IV1|2\.1(-IV[012])?|2\.[234](-IV[01])?"
)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One config: type as in DescribeConfigs, accepted values, and the first Kafka release after 2.4 that has it."""

    type: str
    expected: str
    takes: Callable[[str], bool]
    since: str | None = None
    is_stricter: bool = False
    """Whether this table is stricter than Kafka's parser."""


def _number(least: int, most: int, *others: int, since: str | None = None) -> TopicConfig:
    """Return a whole number within bounds, of type LONG if INT could not hold it."""
    bits = "INT" if most <= INT else "LONG"
    also = "".join(f", or {other}" for other in others)

    def takes(text: str) -> bool:
        if not _WHOLE_NUMBER.fullmatch(text) or len(text) > len(str(-LONG)):
            return False
        return least <= int(text) <= most or int(text) in others

    return TopicConfig(bits, f"a whole number from {least} to {most}{also}", takes, since)


def _one_of(*values: str) -> TopicConfig:
    return TopicConfig("STRING", f"one of {', '.join(values)}", lambda text: text in values)


def _boolean(since: str | None = None) -> TopicConfig:
    return TopicConfig("BOOLEAN", "true or false", lambda text: text.lower() in {"true", "false"}, since)


_NOT_WITH_ZOOKEEPER: Final = TopicConfig(
    "BOOLEAN", "false: Kafka knows true only without ZooKeeper", lambda text: text.lower() == "false", "3.9"
)

_RATIO: Final = TopicConfig(
    "DOUBLE", "a number from 0 to 1", lambda text: bool(_DECIMAL.fullmatch(text)) and 0 <= float(text) <= 1
)

_POLICIES: Final = {"compact", "delete"}
_POLICY_TYPE: Final = TopicConfig(
    "LIST",
    "compact, delete, or both by comma",
    lambda text: not text or set(re.split(r"\s*,\s*", text)) <= _POLICIES,
)

_THROTTLED: Final = TopicConfig(
    "LIST",
    "* or partition:broker by comma, as in 0:1,1:2",
    lambda text: bool(_REPLICAS.fullmatch(text)),
    is_stricter=True,  # brokers fail on blanks and empty members of the list
)

_FORMAT: Final = TopicConfig(
    "STRING",
    "a version of Kafka from 0.8.0 to 2.4-IV1 (later ones mean the same format)",
    lambda text: bool(_FORMATS.fullmatch(text)),
    is_stricter=True,  # an older broker stops on a version that it does not know
)

TOPIC_CONFIGS: Final[Mapping[str, TopicConfig]] = {
    POLICY: _POLICY_TYPE,
    "compression.gzip.level": _number(1, 9, -1, since="3.8"),
    "compression.lz4.level": _number(1, 17, since="3.8"),
    "compression.type": _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "compression.zstd.level": _number(-131072, 22, since="3.8"),
    "delete.retention.ms": _number(0, LONG),
    "file.delete.delay.ms": _number(0, LONG),
    "flush.messages": _number(1, LONG),
    "flush.ms": _number(0, LONG),
    FOLLOWER_REPLICAS: _THROTTLED,
    "index.interval.bytes": _number(0, INT),
    LEADER_REPLICAS: _THROTTLED,
    "local.retention.bytes": _number(-2, LONG, since="3.6"),
    "local.retention.ms": _number(-2, LONG, since="3.6"),
    "max.compaction.lag.ms": _number(1, LONG),
    "max.message.bytes": _number(0, INT),
    "message.downconversion.enable": _boolean(),
    "message.format.version": _FORMAT,
    "message.timestamp.after.max.ms": _number(0, LONG, since="3.6"),
    "message.timestamp.before.max.ms": _number(0, LONG, since="3.6"),
    "message.timestamp.difference.max.ms": _number(0, LONG),
    "message.timestamp.type": _one_of("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": _RATIO,
    "min.compaction.lag.ms": _number(0, LONG),
    MIN_ISR: _number(1, INT),
    "preallocate": _boolean(),
    "remote.log.copy.disable": _NOT_WITH_ZOOKEEPER,
    "remote.log.delete.on.disable": _NOT_WITH_ZOOKEEPER,
    TIERED: _boolean("3.6"),
    "retention.bytes": _number(-LONG - 1, LONG),
    "retention.ms": _number(-1, LONG),
    "segment.bytes": _number(14, INT),
    "segment.index.bytes": replace(_number(12, INT), is_stricter=True),
    "segment.jitter.ms": _number(0, LONG),
    "segment.ms": _number(1, LONG),
    UNCLEAN_ELECTION: _boolean(),
}


def parsed(value: str) -> str:
    """Return a value as Kafka's parser trims it (`ConfigDef.parseType`)."""
    return value.strip(_JAVA_BLANKS)


def same_value(name: str, one: str | None, other: str | None) -> bool:
    """Return whether two values are equal to Kafka; brokers without ZooKeeper report a value as they parsed it.

    >>> pairs = [("preallocate", " True", "true"), ("retention.ms", "+7", "7")]
    >>> pairs.append(("cleanup.policy", "compact , delete", "compact,delete"))
    >>> [same_value(*pair) for pair in pairs], same_value("retention.ms", "7", None)
    ([True, True, True], False)
    """
    if one is None or other is None:
        return one is other
    return _normalised(name, one) == _normalised(name, other)


def _normalised(name: str, value: str) -> object:
    setting, text = TOPIC_CONFIGS.get(name), parsed(value)
    if setting is None or not setting.takes(text):
        return value
    match setting.type:
        case "BOOLEAN":
            return text.lower()
        case "INT" | "LONG":
            return int(text)
        case "DOUBLE":
            return float(text)
        case "LIST":
            return re.split(r"\s*,\s*", text)
    return text


def boolean(value: str | None) -> bool | None:
    r"""Parse a BOOLEAN; None if Kafka would not parse it.

    >>> [boolean(value) for value in (" true ", "False\t", "yes", "", None)]
    [True, False, None, None, None]
    """
    return None if value is None else {"true": True, "false": False}.get(parsed(value).lower())


def whole_number(value: str | None) -> int | None:
    """Parse an INT; None if Kafka would not parse it.

    >>> [whole_number(value) for value in (" 2", "+2 ", "many", "2.5", "3000000000", "", None)]
    [2, 2, None, None, None, None, None]
    """
    if value is None or not _WHOLE_NUMBER.fullmatch(parsed(value)):
        return None
    number = int(parsed(value)[:_MAX_DIGITS])
    return number if -INT - 1 <= number <= INT else None


def config_name_faults(names: Mapping[str, object]) -> Iterator[str]:
    """Yield a fault for each name that no release knows.

    >>> list(config_name_faults({"retention.sm": "1"}))
    ['retention.sm is not a topic config of Kafka 2.4 to 3.9, did you mean retention.ms?']
    """
    for name in sorted(names.keys() - TOPIC_CONFIGS.keys()):
        near = get_close_matches(name, TOPIC_CONFIGS, 1)
        hint = f", did you mean {near[0]}?" if near else ""
        yield f"{name} is not a topic config of Kafka 2.4 to 3.9{hint}"


def value_faults(config: Mapping[str, str]) -> Iterator[str]:
    """Yield a fault for each value that Kafka would not parse or would refuse; unknown names are skipped.

    >>> list(value_faults({"retention.ms": "abc", "segment.ms": "1"}))
    ["retention.ms='abc': expected a whole number from -1 to 9223372036854775807"]
    """
    for name, value in sorted(config.items()):
        setting = TOPIC_CONFIGS.get(name)
        if setting is not None and not setting.takes(parsed(value)):
            yield f"{name}={value!r}: expected {setting.expected}"


_STRICTER: Final = {name for name, setting in TOPIC_CONFIGS.items() if setting.is_stricter}


def unparsable_values(config: Mapping[str, str | None]) -> Iterator[str]:
    """Yield a fault for each value on which Kafka's parser would throw; values not understood are skipped.

    >>> list(unparsable_values({"retention.ms": "abc", "segment.index.bytes": "1", "preallocate": None}))
    ["retention.ms='abc': expected a whole number from -1 to 9223372036854775807"]
    """
    return value_faults({name: value for name, value in config.items() if value is not None and name not in _STRICTER})


def conflicts(overrides: Mapping[str, str | None]) -> Iterator[str]:
    """Yield the conflicts among a topic's overrides (`LogConfig.validateValues`), with Kafka's defaults for None.

    >>> list(conflicts({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"}))
    ['min.compaction.lag.ms=10 is more than max.compaction.lag.ms=9']
    """
    least, most = "min.compaction.lag.ms", "max.compaction.lag.ms"
    given = {name: value for name, value in overrides.items() if value is not None}
    lags = {name: given.get(name, default) for name, default in ((least, "0"), (most, str(LONG)))}
    if not list(value_faults(lags)) and int(parsed(lags[least])) > int(parsed(lags[most])):
        yield f"{least}={lags[least]} is more than {most}={lags[most]}"


@dataclass(frozen=True, slots=True)
class _Limit:
    """A config of which a lower value loses something; a negative value or None is no limit."""

    default: int | None
    """Kafka's default. Brokers may have another, so a value for an override that is not set counts as lower."""
    unit: str
    loss: str
    policy: str | None = None
    """The cleanup policy without which the config has no effect."""


_LIMITS: Final[Mapping[str, _Limit]] = {
    "retention.ms": _Limit(7 * 86_400_000, "ms", "records older than {limit} are deleted", "delete"),
    "retention.bytes": _Limit(None, "bytes", "the oldest records of a partition beyond {limit} are deleted", "delete"),
    "local.retention.ms": _Limit(None, "ms", "local copies older than {limit} are deleted, remote ones stay", TIERED),
    "local.retention.bytes": _Limit(None, "bytes", "local copies beyond {limit} are deleted, remote ones stay", TIERED),
    "delete.retention.ms": _Limit(
        86_400_000, "ms", "consumers that read for longer than {limit} miss deletions of keys", "compact"
    ),
    "max.message.bytes": _Limit(1_048_588, "bytes", "larger records are refused"),
    MIN_ISR: _Limit(1, "", "acks=all is answered with fewer copies, so failures may lose acknowledged records"),
}


def losses(before: Mapping[str, str | None], after: Mapping[str, str | None]) -> Iterator[str]:
    """Yield what may be deleted or lost once the overrides of a topic are no longer `before`, but `after`.

    >>> list(losses({"retention.ms": "604800000"}, {"retention.ms": "1000"}))
    ['retention.ms 604800000→1000 (7d→1s): records older than 1s are deleted']
    >>> list(losses({"cleanup.policy": "compact"}, {}))
    ["cleanup.policy compact→not set: records older than 7d (Kafka's default) are deleted, also the last of a key"]
    """
    policies, planned = _policies(before), _policies(after)
    if POLICY in before or POLICY in after:
        change = f"{POLICY} {_shown(before.get(POLICY))}→{_shown(after.get(POLICY))}"
        if "delete" in planned - policies and (age := _limit("retention.ms", after)) is not None:
            default = "" if after.get("retention.ms") else " (Kafka's default)"
            yield f"{change}: records older than {_span(age)}{default} are deleted, also the last of a key"
        if "compact" in planned - policies:
            yield f"{change}: earlier records of a key are deleted, and records without a key"
    for name, limit in _LIMITS.items():
        if not same_value(name, before.get(name), after.get(name)) and _is_lower(name, before, after):
            later = "" if limit.policy is None or limit.policy in planned else f", once {_condition(limit.policy)}"
            yield f"{_loss(name, limit, before, after)}{later}"


def _condition(policy: str) -> str:
    return f"{TIERED} is true" if policy == TIERED else f"{POLICY} has {policy}"


def _policies(config: Mapping[str, str | None]) -> set[str]:
    """Return the cleanup policies, and TIERED if the topic has tiered storage."""
    policy = config.get(POLICY)
    tiered = {TIERED} if boolean(config.get(TIERED)) else set()
    return {*re.split(r"\s*,\s*", parsed("delete" if policy is None else policy)), *tiered}


def _limit(name: str, config: Mapping[str, str | None]) -> int | None:
    """Return the limit that applies, None for none."""
    value = config.get(name)
    number = _LIMITS[name].default if value is None else _long(value)
    return None if number is None or number < 0 else number


def _long(value: str) -> int | None:
    """Parse a LONG; None if Kafka would not parse it."""
    return int(parsed(value)) if TOPIC_CONFIGS["retention.bytes"].takes(parsed(value)) else None


def _is_lower(name: str, before: Mapping[str, str | None], after: Mapping[str, str | None]) -> bool:
    planned, current = _limit(name, after), _limit(name, before)
    if planned is None:
        return False
    is_unknown = before.get(name) is None and _LIMITS[name].policy is not None
    return is_unknown or current is None or planned < current


def _loss(name: str, limit: _Limit, before: Mapping[str, str | None], after: Mapping[str, str | None]) -> str:
    planned = _limit(name, after)
    span = f"{planned:,} bytes" if limit.unit == "bytes" else _span(planned or 0)
    if after.get(name) is None:
        span += " (Kafka's default)"
    values = [config.get(name) for config in (before, after)]
    numbers = [_long(value) if value else None for value in values if limit.unit == "ms"]
    ages = ["" if number is None else _span(number) for number in numbers]
    spans = f" ({'→'.join(filter(None, ages))})" if any(ages) else ""
    return f"{name} {'→'.join(map(_shown, values))}{spans}: {limit.loss.format(limit=span)}"


def _shown(value: str | None) -> str:
    return "not set" if value is None else value or "empty"


def _span(milliseconds: int) -> str:
    """Return a time in the largest unit that divides it.

    >>> [_span(milliseconds) for milliseconds in (604_800_000, 5_400_000, 1000, 7, -1)]
    ['7d', '90min', '1s', '7ms', 'unlimited']
    """
    if milliseconds < 0:
        return "unlimited"
    units = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1000, "ms": 1}
    unit = next(unit for unit, size in units.items() if size == 1 or (milliseconds and milliseconds % size == 0))
    return f"{milliseconds // units[unit]}{unit}"
