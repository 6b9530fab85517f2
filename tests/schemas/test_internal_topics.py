"""Names of internal topics: their owners, and the same names by regex for the engines that plan moves."""

import re

from schemas.internal_topics import owner_of, pattern_of_internal, unmet_configs

# name, the beginning of its owner; None for a topic like any other
NAMES: list[tuple[str, str | None]] = [
    ("__consumer_offsets", "Kafka"),
    ("__transaction_state", "Kafka"),
    ("__share_group_state", "Kafka"),
    ("__cluster_metadata", "Kafka"),
    ("__mine", "Kafka or a tool"),
    ("_schemas", "Schema Registry"),
    ("__schemas", "Schema Registry"),
    ("schemas", "Schema Registry"),
    ("connect-configs", "Kafka Connect"),
    ("connect-offsets", "Kafka Connect"),
    ("connect-status", "Kafka Connect"),
    ("docker-connect-offsets", "Kafka Connect"),
    ("_connect-configs", "Kafka Connect"),
    ("my_connect_statuses", "Kafka Connect"),
    ("my-connect-cluster-offsets", "Kafka Connect"),
    ("confluent.connect-config-storage-topic", "Kafka Connect"),
    ("mm2-configs.a.internal", "MirrorMaker 2"),
    ("mm2-offset-syncs.a.internal", "MirrorMaker 2"),
    ("mm2-status-a-internal", "MirrorMaker 2"),
    ("a.checkpoints.internal", "MirrorMaker 2"),
    ("heartbeats", "MirrorMaker 2"),
    ("a.heartbeats", "MirrorMaker 2"),
    ("mirrormaker2-cluster-offsets", "MirrorMaker 2"),
    ("app-KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog", "Kafka Streams"),
    ("app-by-key-repartition", "Kafka Streams"),
    ("app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000004-topic", "Kafka Streams"),
    ("_confluent-ksql-default__command_topic", "ksqlDB"),
    ("_confluent-metrics", "Confluent Platform"),
    ("__CruiseControlMetrics", "Cruise Control"),
    ("__KafkaCruiseControlPartitionMetricSamples", "Cruise Control"),
    ("strimzi.cruisecontrol.metrics", "Cruise Control"),
    ("team-registry", "internal_topics in the conf"),
    ("a+b", "internal_topics in the conf"),
    ("orders", None),
    ("orders-offsets", None),
    ("connections", None),
    ("connect-orders", None),
    ("disconnect-status-page", None),
    ("changelog", None),
    ("_orders", None),
    ("schemas-v2", None),
    ("a.internal", None),
    ("aab", "internal_topics in the conf"),
]
DECLARED = ("team-.*", "a+b")


def test_owners() -> None:
    owners = [(name, owner_of(name, DECLARED)) for name, _ in NAMES]

    assert [
        (name, owner if owner is None or expected is None else owner[: len(expected)])
        for (name, owner), (_, expected) in zip(owners, NAMES, strict=True)
    ] == NAMES


def test_the_regex_for_engines_agrees() -> None:
    found = {name for name, _ in NAMES if re.search(pattern_of_internal(DECLARED), name)}

    assert found == {name for name, owner in NAMES if owner is not None}


# topic, configs, replicas, what is missing
UNMET: list[tuple[str, dict[str, str], int | None, dict[str, str]]] = [
    ("orders", {}, 3, {}),
    ("__consumer_offsets", {}, 3, {"cleanup.policy": "compact"}),
    ("__consumer_offsets", {"cleanup.policy": "compact,delete"}, 3, {"cleanup.policy": "compact"}),
    ("__consumer_offsets", {"cleanup.policy": " compact"}, 3, {}),
    ("docker-connect-offsets", {"cleanup.policy": "delete"}, None, {"cleanup.policy": "compact"}),
    (
        "__transaction_state",
        {"cleanup.policy": "compact"},
        3,
        {"compression.type": "uncompressed", "min.insync.replicas": "2", "unclean.leader.election.enable": "false"},
    ),
    (
        "__transaction_state",
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",
            "unclean.leader.election.enable": "FALSE",
        },
        1,
        {},
    ),
    ("__share_group_state", {"cleanup.policy": "delete"}, 3, {"retention.ms": "-1"}),
    ("_schemas", {"cleanup.policy": "compact"}, 3, {}),
    ("__mine", {}, 3, {}),
]


def test_configs_that_owners_need() -> None:
    assert [(*case[:3], unmet_configs(*case[:3])) for case in UNMET] == UNMET
