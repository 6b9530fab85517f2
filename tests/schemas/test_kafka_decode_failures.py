"""Which malformed znodes end Kafka's controller or keep brokers from starting, by the code of `ZkData` of 3.9.2."""

from typing import Final

import pytest

from schemas.kafka_decode_failures import KafkaImpact, impact_of

OVER, START = KafkaImpact.FAIL_OVER, KafkaImpact.START
TOPIC, STATE, CONFIG = "/brokers/topics/t", "/brokers/topics/t/partitions/0/state", "/config/topics/t"
REASSIGN, ELECT = "/admin/reassign_partitions", "/admin/preferred_replica_election"
GOOD_STATE: Final = '{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}'
REGISTRATION: Final = "/brokers/ids/7"
BROKER: Final = '{"version":5,"jmx_port":-1,"endpoints":["PLAINTEXT://h:9092"],"host":"h","port":9092}'

# path, data, what it blocks: one of each kind
CASES: Final[list[tuple[str, str | None, KafkaImpact | None]]] = [
    *((TOPIC, data, OVER) for data in (None, "", "null", "[1]", '{"partitions":{"0":["1"]}}')),
    *((TOPIC, data, None) for data in ("hello", "{}", '{"partitions":{"0":[1]}} trailing')),
    (TOPIC, '{"partitions":{"zero":[1]}}', OVER),
    (TOPIC, '{"partitions":{"0":[1]},"adding_replicas":{"0":null}}', OVER),
    (TOPIC, '{"partitions":{},"topic_id":"x"}', OVER),
    *((STATE, data, OVER) for data in (None, "{}", GOOD_STATE.replace("[1,2]", '["1"]'))),
    *((STATE, data, None) for data in ("hello", GOOD_STATE, GOOD_STATE.replace("[1,2]", "[1,1]"))),
    (STATE, GOOD_STATE.replace("}", ',"leader_recovery_state":2}'), OVER),
    *((CONFIG, data, None) for data in (None, "null", "hello", "{}", '{"config":{"retention.ms":"5"}}')),
    *((path, '{"config":{"name":5}}', START) for path in (CONFIG, "/config/brokers/<default>", "/config/clients/c")),
    ("/config/brokers/abc", '{"version":1,"config":{}}', START),
    *((REASSIGN, data, OVER) for data in (None, "null", '{"partitions":null}', '{"partitions":[null]}')),
    *((REASSIGN, data, None) for data in ("", "hello", '{"partitions":[]}')),
    (REASSIGN, '{"partitions":[{"topic":"t","partition":"x","replicas":[1]},null]}', None),
    (REASSIGN, '{"partitions":[{"topic":"t","partition":0,"replicas":[1]}]}', None),
    (REASSIGN, '{"partitions":[{"topic":"t","partition":0}]}', OVER),
    *((ELECT, data, OVER) for data in (None, "", "null", '{"partitions":[{"partition":0}]}')),
    *((ELECT, data, None) for data in ("hello", '{"partitions":[]}')),
    *(("/controller_epoch", data, OVER) for data in (None, "x", "9999999999")),
    ("/controller_epoch", "7", None),
    *((REGISTRATION, data, KafkaImpact.ALL) for data in (None, "hello", "{}", '{"version":5,"endpoints":[]}')),
    *((REGISTRATION, BROKER.replace("}", f",{more}}}"), KafkaImpact.ALL) for more in ('"rack":5', '"version":"5"')),
    (REGISTRATION, BROKER.replace("}", ',"features":{"a":{}}}'), KafkaImpact.ALL),
    (REGISTRATION, BROKER.replace("}", ',"endpoints":["PLAINTEXT://h:1","PLAINTEXT://h:2"]}'), KafkaImpact.ALL),
    (REGISTRATION, BROKER.replace("}", ',"endpoints":[]}'), OVER),
    (REGISTRATION, BROKER, None),
    ("/brokers/ids/x", BROKER, KafkaImpact.ALL),
    ("/isr_change_notification/foo", "{}", OVER),
    *(("/cluster/id", data, START) for data in ("hello", '{"id":5}')),
    ("/cluster/id", '{"version":"1","id":"x"}', None),
    *(("/feature", data, OVER) for data in ("hello", '{"version":9,"status":1,"features":{}}')),
    ("/latest_producer_id_block", "hello", KafkaImpact.PRODUCER_IDS),
    ("/latest_producer_id_block", '{"version":1,"broker":1,"block_start":"0","block_end":"999"}', None),
    ("/elsewhere", "null", None),
]


@pytest.mark.parametrize(("path", "data", "expected"), CASES)
def test_what_kafka_throws_on(path: str, data: str | None, expected: KafkaImpact | None) -> None:
    assert impact_of(path, None if data is None else data.encode()) is expected
