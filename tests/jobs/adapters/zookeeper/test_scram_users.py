"""SCRAM users, whose names Kafka's tools encode in paths (`Sanitizer.sanitize`)."""

from jobs.adapters.zookeeper.scram_users import sanitize, scram_credential
from schemas.znode_codecs import encode_config
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

CREDENTIAL = "salt=c2FsdA==,stored_key=a2V5,server_key=c2VydmVy,iterations=4096"
ZNODE_BY_USER = {
    "alice": "alice",
    "a~b": "a%7Eb",
    "a*b": "a%2Ab",
    "a b": "a%20b",
    "a+b": "a%2Bb",
    "CN=x,O=y": "CN%3Dx%2CO%3Dy",
    "a/b": "a%2Fb",
    "a.b-c_d": "a.b-c_d",
    "ü": "%C3%BC",
}
"""As `java.net.URLEncoder` and the two replacements of `Sanitizer` write them."""


def test_names_are_encoded_as_kafka_encodes_them() -> None:
    assert {user: sanitize(user) for user in ZNODE_BY_USER} == ZNODE_BY_USER


def test_a_user_is_found_at_the_encoded_path(tree: KafkaTree) -> None:
    tree.write("/config/users/a%7Eb", encode_config({"SCRAM-SHA-256": CREDENTIAL}))
    credential = scram_credential(tree.client, "a~b", "SCRAM-SHA-256")
    assert credential is not None
    assert credential.iterations == 4096
