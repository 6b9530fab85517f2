"""The table of topic configs compared with the values that Kafka 3.9.2's own class accepts and refuses."""

from typing import Final

import pytest

from schemas.topic_configs import TIERED, TOPIC_CONFIGS, config_name_faults, conflicts, losses, value_faults

NUMBERS: Final = (
    *("abc", "", "1_000", "1.0", "1e3", "5L", "0x10", " 5 ", "+5", "0", "1", "-1", "-2", "-3", "3", "4", "9", "10"),
    *("13", "14", "17", "18", "22", "23", "-131072", "-131073", "2147483647", "2147483648", "-2147483648"),
    *("9223372036854775807", "9223372036854775808"),
)
SMALL: Final = {"1", "3", "4", "9", " 5 ", "+5"}
POSITIVE: Final = SMALL | {"10", "13", "14", "17", "18", "22", "23", "2147483647"}
LONG: Final = {"2147483648", "9223372036854775807"}
BOOLEANS: Final = ("true", "false", "True", "FALSE", " true ", "yes", "1", "", "tru")
THROTTLED: Final = (
    *("*", "", "0:1", "0:1,1:2", "0:1, 1:2", " 0:1", "0:1,"),
    *("0", "0:*", "0:1:2", "*,0:1", "0:1,*", "none", "-1:2", "all"),
)
FORMATS: Final = (
    *("0.8.0", "0.8.2", "0.9.0", "0.10.0", "0.10.0-IV1", "0.10.1", "0.11.0", "0.11.0-IV2", "1.0", "1.0-IV0", "1.1"),
    *("2.0", "2.1-IV2", "2.4", "2.4-IV1", "2.4.1", "2.5", "3.0-IV1", "3.9", "3.9-IV0", "4.0-IV0", " 2.4 ", "1.0.0"),
    *("4.1", "", "abc", "2.9", "2", "0.7.0", "2.4-IV2"),
)
RATIOS: Final = (
    *("0", "1", "0.5", "5e-1", ".5", "1.", " 0.5 ", "NaN", "0.5f", "0.5d", "0x1p-1"),
    *("1.5", "-0.1", "abc", "", "Infinity", "0,5"),
)
POLICIES: Final = (
    *("compact", "delete", "compact,delete", "delete, compact", "compact,compact", "", " delete "),
    *("Delete", "compact,", "both", "compact;delete"),
)
COMPRESSIONS: Final = (
    *("gzip", "snappy", "lz4", "zstd", "uncompressed", "producer", " gzip"),
    *("none", "GZIP", "", "zip"),
)
TIMESTAMPS: Final = ("CreateTime", "LogAppendTime", "LogAppendTime ", "createtime", "", "NoTimestampType")

_FROM_0: Final = POSITIVE | {"0"}

ACCEPTED: Final[dict[str, tuple[tuple[str, ...], set[str]]]] = {
    "cleanup.policy": (POLICIES, set(POLICIES[:7])),
    "compression.gzip.level": (NUMBERS, SMALL | {"-1"}),
    "compression.lz4.level": (NUMBERS, SMALL | {"10", "13", "14", "17"}),
    "compression.type": (COMPRESSIONS, set(COMPRESSIONS[:7])),
    "compression.zstd.level": (NUMBERS, _FROM_0 - {"23", "2147483647"} | {"-1", "-2", "-3", "-131072"}),
    **dict.fromkeys(
        ("delete.retention.ms", "file.delete.delay.ms", "flush.ms", "min.compaction.lag.ms", "segment.jitter.ms"),
        (NUMBERS, _FROM_0 | LONG),
    ),
    **{f"message.timestamp.{which}.max.ms": (NUMBERS, _FROM_0 | LONG) for which in ("after", "before", "difference")},
    **dict.fromkeys(("flush.messages", "max.compaction.lag.ms", "segment.ms"), (NUMBERS, POSITIVE | LONG)),
    **dict.fromkeys(("index.interval.bytes", "max.message.bytes"), (NUMBERS, _FROM_0)),
    **{f"{role}.replication.throttled.replicas": (THROTTLED, set(THROTTLED[:7])) for role in ("leader", "follower")},
    **dict.fromkeys(("local.retention.bytes", "local.retention.ms"), (NUMBERS, _FROM_0 | LONG | {"-1", "-2"})),
    "message.format.version": (FORMATS, set(FORMATS[:23])),
    "message.timestamp.type": (TIMESTAMPS, set(TIMESTAMPS[:3])),
    "min.cleanable.dirty.ratio": (RATIOS, set(RATIOS[:11])),
    "min.insync.replicas": (NUMBERS, POSITIVE),
    "retention.bytes": (
        NUMBERS,
        _FROM_0 | LONG | {"-1", "-2", "-3", "-131072", "-131073", "-2147483648"},
    ),
    "retention.ms": (NUMBERS, _FROM_0 | LONG | {"-1"}),
    "segment.bytes": (NUMBERS, {"14", "17", "18", "22", "23", "2147483647"}),
    "segment.index.bytes": (NUMBERS, {number for number in POSITIVE if int(number) >= 12}),
    **dict.fromkeys(
        (
            *("message.downconversion.enable", "preallocate", "remote.log.copy.disable"),
            *("remote.log.delete.on.disable", "remote.storage.enable", "unclean.leader.election.enable"),
        ),
        (BOOLEANS, set(BOOLEANS[:5])),
    ),
}
"""Values tried, and those that `LogConfig.validate` of 3.9.2 accepted."""

STRICTER: Final = {
    **{f"{role}.replication.throttled.replicas": {"0:1, 1:2", "0:1,"} for role in ("leader", "follower")},
    "message.format.version": {"2.4.1", "1.0.0", "2.5", "3.0-IV1", "3.9", "3.9-IV0", "4.0-IV0"},
    "min.cleanable.dirty.ratio": {"NaN", "0.5f", "0.5d", "0x1p-1"},
    **{f"remote.log.{operation}.disable": {"true", "True", " true "} for operation in ("copy", "delete.on")},
}
"""Values that Kafka's parser accepts and Surveyor does not: they fail later, in another release or with ZooKeeper."""


@pytest.mark.parametrize("name", sorted(TOPIC_CONFIGS))
def test_values_are_taken_and_refused_as_by_kafka(name: str) -> None:
    tried, accepted = ACCEPTED[name]

    taken = {value for value in tried if not list(value_faults({name: value}))}

    assert taken == accepted - STRICTER.get(name, set())


def test_every_name_was_tried() -> None:
    assert ACCEPTED.keys() == TOPIC_CONFIGS.keys()


def test_names_that_no_release_knows() -> None:
    assert list(config_name_faults({"retention.ms": "1", "min.insync.replica": "1", "x": "1"})) == [
        "min.insync.replica is not a topic config of Kafka 2.4 to 3.9, did you mean min.insync.replicas?",
        "x is not a topic config of Kafka 2.4 to 3.9",
    ]


CONFLICTS: Final = [
    ({}, 0),
    ({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"}, 1),
    ({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "10"}, 0),
    ({"min.compaction.lag.ms": str(2**63 - 1)}, 0),
    ({"min.compaction.lag.ms": "abc", "max.compaction.lag.ms": "9"}, 0),
]


@pytest.mark.parametrize(("config", "faults"), CONFLICTS)
def test_lags_of_compaction_go_together(config: dict[str, str], faults: int) -> None:
    assert len(list(conflicts(config))) == faults


ONCE_TIERED = f", once {TIERED} is true"

# overrides before and after, and what may be lost
LOSSES: list[tuple[dict[str, str], dict[str, str], list[str]]] = [
    ({}, {"segment.ms": "1"}, []),
    (
        {"retention.ms": "604800000"},
        {"retention.ms": "1000"},
        ["retention.ms 604800000→1000 (7d→1s): records older than 1s are deleted"],
    ),
    ({"retention.ms": "1000"}, {"retention.ms": "604800000"}, []),
    ({"retention.ms": "1000"}, {"retention.ms": "-1"}, []),
    ({"retention.ms": "1000"}, {}, []),
    ({"retention.ms": " +1000"}, {"retention.ms": "1000"}, []),
    (
        {"retention.ms": "-1"},
        {},
        ["retention.ms -1→not set (unlimited): records older than 7d (Kafka's default) are deleted"],
    ),
    ({}, {"retention.ms": "3600000"}, ["retention.ms not set→3600000 (1h): records older than 1h are deleted"]),
    (
        {"cleanup.policy": "compact", "retention.ms": "-1"},
        {"cleanup.policy": "compact", "retention.ms": "1"},
        ["retention.ms -1→1 (unlimited→1ms): records older than 1ms are deleted, once cleanup.policy has delete"],
    ),
    (
        {"retention.bytes": "-1"},
        {"retention.bytes": "1048576"},
        ["retention.bytes -1→1048576: the oldest records of a partition beyond 1,048,576 bytes are deleted"],
    ),
    ({"retention.bytes": "5"}, {}, []),
    (
        {"local.retention.ms": "7"},
        {"local.retention.ms": "5"},
        [
            f"local.retention.ms 7→5 (7ms→5ms): local copies older than 5ms are deleted, remote ones stay{ONCE_TIERED}",
        ],
    ),
    (
        {"remote.storage.enable": "true"},
        {"remote.storage.enable": "true", "local.retention.ms": "5"},
        ["local.retention.ms not set→5 (5ms): local copies older than 5ms are deleted, remote ones stay"],
    ),
    (
        {"cleanup.policy": "compact"},
        {"cleanup.policy": "delete", "retention.ms": "60000"},
        [
            "cleanup.policy compact→delete: records older than 1min are deleted, also the last of a key",
            "retention.ms not set→60000 (1min): records older than 1min are deleted",
        ],
    ),
    ({"cleanup.policy": "compact"}, {"cleanup.policy": "delete", "retention.ms": "-1"}, []),
    (
        {"cleanup.policy": "compact"},
        {},
        ["cleanup.policy compact→not set: records older than 7d (Kafka's default) are deleted, also the last of a key"],
    ),
    (
        {"cleanup.policy": "delete"},
        {"cleanup.policy": "compact"},
        [
            "cleanup.policy delete→compact: earlier records of a key are deleted, and records without a key",
        ],
    ),
    (
        {"cleanup.policy": "compact"},
        {"cleanup.policy": "compact", "delete.retention.ms": "0"},
        [
            "delete.retention.ms not set→0 (0ms): consumers that read for longer than 0ms miss deletions of keys",
        ],
    ),
    ({}, {"max.message.bytes": "2000000"}, []),
    ({"max.message.bytes": "2000000"}, {}, ["max.message.bytes 2000000→not set: larger records are refused"]),
    (
        {"min.insync.replicas": "2"},
        {"min.insync.replicas": "1"},
        ["min.insync.replicas 2→1: acks=all is answered with fewer copies, so failures may lose acknowledged records"],
    ),
]


def test_what_a_change_of_configs_loses() -> None:
    assert [(before, after, list(losses(before, after))) for before, after, _ in LOSSES] == LOSSES
