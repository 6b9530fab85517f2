"""Znodes as Kafka writes them, in all versions, with their values."""

from collections.abc import Callable
from typing import Final

from schemas.znode_codecs import (
    Assignment,
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
    LogDirEvent,
    State,
    TopicPartition,
    decode_assignment,
    decode_broker,
    decode_cluster_id,
    decode_config,
    decode_controller,
    decode_epoch,
    decode_log_dir_event,
    decode_migration,
    decode_partitions,
    decode_state,
)

Decoder = Callable[[bytes | None], object]

TOPIC_ID: Final = "x6E9ZQpWQvOm6bLqQlQk1A"
PLAIN: Final = Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092)
TWO: Final = (Endpoint("CLIENT", "SASL_SSL", "a.b-c", 9093), Endpoint("REPLICATION", "PLAINTEXT", "10.0.0.1", 9094))

BROKER_V4: Final = (
    b'{"version":4,"host":null,"port":-1,"endpoints":["CLIENT://a.b-c:9093","REPLICATION://10.0.0.1:9094"],'
    b'"jmx_port":-1,"timestamp":"1","listener_security_protocol_map":{"CLIENT":"SASL_SSL","REPLICATION":"PLAINTEXT"}}'
)
BROKER_V5: Final = (
    b'{"version":5,"features":{"f":{"min_version":1,"max_version":2}},"jmx_port":-1,"host":"h","port":9092,"endpoints":["PLAINTEXT://h:9092"],'
    b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"rack":null}'
)
STATE: Final = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}'
RECOVERING: Final = (
    b'{"controller_epoch":2,"leader":-1,"version":1,"leader_epoch":3,"isr":[2],"leader_recovery_state":1}'
)
TOPIC_V3: Final = (
    b'{"version":3,"partitions":{"0":[4,1],"1":[2,1]},"adding_replicas":{"0":[4]},"removing_replicas":{},'
    b'"topic_id":"x6E9ZQpWQvOm6bLqQlQk1A"}'
)
TOPIC_V3_BARE: Final = b'{"version":3,"partitions":{"0":[1,2]},"adding_replicas":{},"removing_replicas":{}}'
CONTROLLER_V2: Final = b'{"version":2,"brokerid":0,"timestamp":"1700000000000","kraftControllerEpoch":-1}'

BY_KAFKA: Final[dict[str, tuple[Decoder, bytes, object]]] = {
    "broker v1": (
        decode_broker,
        b'{"version":1,"host":"h","port":9092,"jmx_port":1}',
        BrokerRegistration((PLAIN,), "h", 9092, None),
    ),
    "broker v2, no map": (
        decode_broker,
        b'{"version":2,"host":"h","port":9092,"endpoints":["PLAINTEXT://h:9092"],"jmx_port":-1,"timestamp":"1"}',
        BrokerRegistration((PLAIN,), "h", 9092, None),
    ),
    "broker v3, a rack": (
        decode_broker,
        b'{"version":3,"host":"h","port":9092,"endpoints":["PLAINTEXT://h:9092"],"jmx_port":-1,"rack":"r1"}',
        BrokerRegistration((PLAIN,), "h", 9092, "r1"),
    ),
    "broker v4, no plaintext": (
        decode_broker,
        BROKER_V4,
        BrokerRegistration(TWO, None, -1, None),
    ),
    "broker v5, features": (
        decode_broker,
        BROKER_V5,
        BrokerRegistration((PLAIN,), "h", 9092, None),
    ),
    "broker of the future": (
        decode_broker,
        b'{"version":100,"endpoints":["PLAINTEXT://[::1]:9092"],"jmx_port":-1,"news":[1]}',
        BrokerRegistration((Endpoint("PLAINTEXT", "PLAINTEXT", "::1", 9092),), None, -1, None),
    ),
    "broker with an IPv6 zone": (
        decode_broker,
        b'{"version":4,"host":null,"port":-1,"jmx_port":-1,"endpoints":["SSL://[fe80::1%25eth0]:1"]}',
        BrokerRegistration((Endpoint("SSL", "SSL", "fe80::1%25eth0", 1),), None, -1, None),
    ),
    "broker of the next version, tagged": (
        decode_broker,
        b'{"version":6,"jmx_port":1,"host":"h","port":9092,"endpoints":["PLAINTEXT://h:9092"],"tags":{"a":[1.5]},"features":{}}',
        BrokerRegistration((PLAIN,), "h", 9092, None),
    ),
    "topic v1": (
        decode_assignment,
        b'{"version":1,"partitions":{"0":[1,2],"10":[2]}}',
        Assignment({0: [1, 2], 10: [2]}, {}, {}, None),
    ),
    "topic v2": (
        decode_assignment,
        b'{"version":2,"partitions":{"0":[3,1]},"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]}}',
        Assignment({0: [3, 1]}, {0: [3]}, {0: [1]}, None),
    ),
    "topic v3": (decode_assignment, TOPIC_V3, Assignment({0: [4, 1], 1: [2, 1]}, {0: [4]}, {}, TOPIC_ID)),
    "topic without partitions": (decode_assignment, b'{"partitions":{}}', Assignment({}, {}, {}, None)),
    "state": (decode_state, STATE, State(1, 1, 0, [1, 2])),
    "state, keys in another order": (
        decode_state,
        b' { "isr" : [2, 1], "leader_epoch": 0, "version": 1, "leader": 2, "controller_epoch": 1, "new": {} } ',
        State(1, 2, 0, [2, 1]),
    ),
    "state, a key twice": (
        decode_state,
        STATE.replace(b'"leader":1,', b'"leader":3,"leader":1,'),
        State(1, 1, 0, [1, 2]),
    ),
    "state, recovering": (decode_state, RECOVERING, State(2, -1, 3, [2], 1)),
    "controller v1": (decode_controller, b'{"version":1,"brokerid":3,"timestamp":"1"}', ControllerRegistration(3, -1)),
    "controller v2": (decode_controller, CONTROLLER_V2, ControllerRegistration(0, -1)),
    "controller of KRaft": (
        decode_controller,
        b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":4}',
        ControllerRegistration(3000, 4),
    ),
    "controller of old": (decode_controller, b"12", ControllerRegistration(12, -1)),
    "controller epoch": (decode_epoch, b"7", 7),
    "largest controller epoch": (decode_epoch, b"2147483646", 2**31 - 2),
    "reassignment": (
        decode_partitions,
        b'{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[1,2]}]}',
        [TopicPartition("foo", 0, [1, 2])],
    ),
    "preferred election": (
        decode_partitions,
        b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":2}]}',
        [TopicPartition("t", 0), TopicPartition("t", 2)],
    ),
    "ISR change": (decode_partitions, b'{"version":1,"partitions":[]}', []),
    "log dir event": (decode_log_dir_event, b'{"version":1,"broker":1,"event":1}', LogDirEvent(1, 1)),
    "config": (decode_config, b'{"version":1,"config":{"k":"v"}}', {"k": "v"}),
    "cluster id": (decode_cluster_id, b'{"version":"1","id":"x6E9ZQpWQvOm6bLqQlQk1A"}', TOPIC_ID),
    "cluster without a migration": (
        decode_migration,
        b'{"version":0,"kraft_controller_id":-1,"kraft_controller_epoch":-1,"kraft_metadata_offset":-1}',
        -1,
    ),
    "cluster in migration": (
        decode_migration,
        b'{"version":0,"kraft_controller_id":3000,"kraft_controller_epoch":1,"kraft_metadata_offset":5}',
        3000,
    ),
}
