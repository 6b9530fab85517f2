"""Exceptions of Kafka's decoders: the results of `kafka.zk.ZkData` of 3.9.2 for these bytes."""

from typing import Final

import pytest

from schemas.kafka_decode_failures import KafkaImpact, impact_of

OVER, START = KafkaImpact.FAIL_OVER, KafkaImpact.START
TOPIC, STATE, CONFIG = "/brokers/topics/t", "/brokers/topics/t/partitions/0/state", "/config/topics/t"
REASSIGN, ELECT = "/admin/reassign_partitions", "/admin/preferred_replica_election"
GOOD_STATE: Final = '{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}'
BROKER: Final = '{"version":5,"jmx_port":-1,"endpoints":["PLAINTEXT://h:9092"],"host":"h","port":9092}'

# path, data, what it blocks
CASES: Final[list[tuple[str, str | None, KafkaImpact | None]]] = [
    *((TOPIC, data, OVER) for data in (None, "", "  ", "null", "[1]", "5", '"x"')),
    *((TOPIC, data, None) for data in ("hello", "{}", '{"version":1}', '{"partitions":{"0":[1]}} trailing')),
    *(
        (TOPIC, f'{{"partitions":{partitions}}}', OVER)
        for partitions in (
            "null",
            "[[1]]",
            '{"0":null}',
            '{"0":["1"]}',
            '{"0":[1.5]}',
            '{"0":[3000000000]}',
            '{"zero":[1]}',
        )
    ),
    *(
        (TOPIC, f'{{"partitions":{some}}}', None)
        for some in ('{"0":[]}', '{"0":[1,1]}', '{"0":[-1]}', '{"-1":[1]}', '{"00":[1]}')
    ),
    (TOPIC, '{"partitions":{"0":[1]},"adding_replicas":null}', OVER),
    (TOPIC, '{"partitions":{"0":[1]},"adding_replicas":{"0":null}}', OVER),
    (TOPIC, '{"partitions":{"0":[1]},"adding_replicas":{"5":null}}', None),
    (TOPIC, '{"partitions":{"0":[1]},"adding_replicas":{"0":[9]}}', None),
    *((TOPIC, f'{{"partitions":{{}},"topic_id":{topic_id}}}', OVER) for topic_id in ("5", "null", '"x"')),
    *((STATE, data, OVER) for data in (None, "", "null", "[1]", "{}", GOOD_STATE.replace('"leader":1,', ""))),
    *((STATE, data, None) for data in ("hello", GOOD_STATE, GOOD_STATE + "x", GOOD_STATE.replace("[1,2]", "[]"))),
    *((STATE, GOOD_STATE.replace("[1,2]", isr), OVER) for isr in ("null", '["1"]')),
    *((STATE, GOOD_STATE.replace("[1,2]", isr), None) for isr in ("[1,1]", "[-1]")),
    *((STATE, GOOD_STATE.replace('"leader":1', f'"leader":{leader}'), OVER) for leader in ('"1"', "null", "true")),
    (STATE, GOOD_STATE.replace('"leader":1', '"leader":-2'), None),
    (STATE, GOOD_STATE.replace("}", ',"leader_recovery_state":2}'), OVER),
    *((CONFIG, data, None) for data in (None, "", "null", "hello", "[1]", "{}", '{"config":null}', '{"config":[]}')),
    (CONFIG, '{"config":{"retention.ms":"5"}}', None),
    *((CONFIG, f'{{"config":{{"retention.ms":{value}}}}}', START) for value in ("5", "null", "true", "[]")),
    ("/config/brokers/<default>", '{"config":{"log.retention.ms":5}}', START),
    ("/config/users/u/clients/c", '{"config":{"producer_byte_rate":5}}', START),
    ("/config/clients/c", '{"config":{"producer_byte_rate":"5"}}', None),
    ("/config/brokers/abc", '{"version":1,"config":{}}', START),
    ("/config/brokers/1", '{"version":1,"config":{}}', None),
    *((REASSIGN, data, OVER) for data in (None, "null", "{}", '{"partitions":null}', '{"partitions":[null]}')),
    *((REASSIGN, data, None) for data in ("", "hello", "[1]", "5", '{"partitions":[]}')),
    (REASSIGN, '{"partitions":[{"topic":"t","partition":"x","replicas":[1]},null]}', None),
    (REASSIGN, '{"partitions":[{"topic":"t","partition":0,"replicas":[1]}]}', None),
    (REASSIGN, '{"partitions":[{"topic":"t","partition":0,"replicas":7}]}', None),
    *(
        (REASSIGN, f'{{"partitions":[{{"topic":"t","partition":0,"replicas":{replicas}}}]}}', OVER)
        for replicas in ("null", '["x"]', "[3000000000]", "[null]")
    ),
    (REASSIGN, '{"partitions":[{"topic":"t","partition":0}]}', OVER),
    *(
        (REASSIGN, f'{{"partitions":[null,{{"topic":"t","partition":{partition},"replicas":[1]}}]}}', OVER)
        for partition in ('"0"', '" 1 "', '""', "1.5", "null", '"+1"')
    ),
    *(
        (REASSIGN, f'{{"partitions":[null,{{"topic":"t","partition":{partition},"replicas":[1]}}]}}', None)
        for partition in ('"1.5"', "true", "[0]", "3000000000")
    ),
    (REASSIGN, '{"partitions":[null,{"topic":"t","partition":0,"replicas":[1],"log_dirs":["any"]}]}', None),
    (REASSIGN, '{"version":"x","partitions":[null]}', None),
    (REASSIGN, '{"version":"1","partitions":[null]}', OVER),
    *((ELECT, data, OVER) for data in (None, "", "null", "[1]", "{}", '{"partitions":null}', '{"partitions":[null]}')),
    *((ELECT, data, None) for data in ("hello", '{"partitions":[]}', '{"partitions":[{"topic":"t","partition":-1}]}')),
    (ELECT, '{"partitions":[{"partition":0}]}', OVER),
    *(("/controller_epoch", data, OVER) for data in (None, "", "x", "7\n", " 7", "9999999999")),
    *(("/controller_epoch", data, None) for data in ("7", "-1", "+7", "\u0667", "00000000007")),
    *(("/brokers/ids/7", data, KafkaImpact.ALL) for data in (None, "", "hello", "{}", '{"version":5,"endpoints":[]}')),
    ("/brokers/ids/7", BROKER, None),
    *(
        ("/brokers/ids/7", BROKER.replace("}", f",{more}}}"), KafkaImpact.ALL)
        for more in (
            '"rack":5',
            *(f'"features":{features}' for features in ("5", '"x"', "[]", '{"a":5}', '{"a":null}', '{"a":{}}')),
            '"features":{"a":{"min_version":3,"max_version":2}}',
            '"features":{"a":{"min_version":1,"max_version":99999}}',
            '"features":{"a":{"min_version":"1","max_version":2}}',
            *(f'"jmx_port":{port}' for port in ('"x"', "null")),
            *(f'"listener_security_protocol_map":{protocols}' for protocols in ("null", "5", "{}")),
            '"listener_security_protocol_map":{"PLAINTEXT":"X"}',
            '"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT","Y":"Z"}',
            *(f'"endpoints":{endpoints}' for endpoints in ("null", '"PLAINTEXT://h:1"', "[5]", '["h:1"]')),
            *(f'"endpoints":["{endpoint}"]' for endpoint in ("INT://h:1", "://h:1", "PLAINTEXT://h:9999999999")),
            '"endpoints":["PLAINTEXT://h:1","PLAINTEXT://h:2"]',
            '"version":"5"',
            '"version":1,"port":"1"',
            '"version":1,"host":null',
        )
    ),
    *(
        ("/brokers/ids/7", BROKER.replace("}", f",{more}}}"), None)
        for more in (
            '"rack":null',
            '"features":null',
            '"features":{"a":{"min_version":1,"max_version":2}}',
            '"port":"1"',
            '"host":5',
            '"version":6',
            '"version":1,"listener_security_protocol_map":5',
            '"endpoints":["plaintext://h:1"," B://h:-1"],"listener_security_protocol_map":{"PLAINTEXT":"plaintext","B":"SSL"}',
        )
    ),
    ("/brokers/ids/7", BROKER.replace("}", ',"endpoints":[]}'), OVER),
    ("/brokers/ids/+7", BROKER, None),
    ("/brokers/ids/00000000007", BROKER, None),
    ("/brokers/ids/x", BROKER, KafkaImpact.ALL),
    ("/isr_change_notification/foo", "{}", OVER),
    ("/isr_change_notification/isr_change_0000000001", "null", None),
    ("/log_dir_event_notification/foo", "{}", OVER),
    *(("/cluster/id", data, START) for data in (None, "", "hello", "{}", '{"id":5}')),
    ("/cluster/id", '{"version":"1","id":"x"}', None),
    *(("/feature", data, OVER) for data in ("hello", "{}", '{"version":9,"status":1,"features":{}}')),
    ("/feature", '{"version":1,"status":1,"features":{}}', None),
    *(
        ("/latest_producer_id_block", data, KafkaImpact.PRODUCER_IDS)
        for data in ("hello", "{}", '{"broker":1,"block_start":0}')
    ),
    ("/latest_producer_id_block", '{"version":1,"broker":1,"block_start":"0","block_end":"999"}', None),
    ("/elsewhere", "null", None),
]


@pytest.mark.parametrize(("path", "data", "expected"), CASES)
def test_what_kafka_throws_on(path: str, data: str | None, expected: KafkaImpact | None) -> None:
    assert impact_of(path, None if data is None else data.encode()) is expected
