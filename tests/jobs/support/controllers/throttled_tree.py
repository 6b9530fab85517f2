"""The configuration API of Kafka's brokers: requests to the Admin API, applied to the tree."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from jobs.adapters.clusters.interface import Lease
from jobs.adapters.clusters.zookeeper import ZooKeeperCluster
from jobs.execution.admin.commit_lease import lease_for
from jobs.runtime.settings import Settings
from schemas.topic_configs import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from schemas.znode_codecs import decode_config, encode_config
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

RATES = (LEADER_RATE, FOLLOWER_RATE)
REPLICAS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)

Overrides = dict[str, dict[str, str]]


@contextmanager
def own_lease(settings: Settings, plan_id: str, command: str) -> Iterator[Lease]:
    """The lease as a process has it that does nothing else."""
    with (
        ZooKeeperCluster(settings.zookeeper_endpoint) as cluster,
        lease_for(settings, cluster, plan_id, command) as lease,
    ):
        yield lease


def answer_as_admin(controller: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all commands use this controller in place of the Admin API."""

    @contextmanager
    def connected(*_: object, **__: object) -> Iterator[object]:
        yield controller

    monkeypatch.setattr("jobs.execution.admin.connections.connected_admin", connected)


class CrashError(Exception):
    """Ends the process."""


class ConfigBrokers:
    """Brokers with overrides.

    `refuses` names a broker that refuses them, `crashes` is the number of requests before a crash.
    """

    def __init__(self, tree: KafkaTree) -> None:
        self.tree = tree
        self.alterations: list[tuple[str, str]] = []
        self.refuses: str | None = None
        self.crashes: int | None = None
        self.before_alteration: Callable[[], object] = lambda: None

    def alter_override(self, kind: str, resource: str, entries: Mapping[str, str | None]) -> int | str:
        self.before_alteration()
        if self.crashes is not None and len(self.alterations) >= self.crashes:
            raise CrashError
        if resource == self.refuses:
            return "not now"
        self.alterations.append((kind, resource))
        override(self.tree, kind, resource, entries)
        return 0


def override(tree: KafkaTree, kind: str, resource: str, entries: Mapping[str, str | None]) -> None:
    """Set overrides, or delete those that are None, as a broker does."""
    values = {**_read(tree, f"/config/{kind}s/{resource}"), **entries}
    data = encode_config({name: value for name, value in values.items() if value is not None})
    tree.write(f"/config/{kind}s/{resource}", data)


def overrides(tree: KafkaTree) -> Overrides:
    """The overrides of brokers and topics that have any."""
    by_resource: Overrides = {}
    for kind in ("brokers", "topics"):
        parent = f"/config/{kind}"
        names = tree.client.get_children(parent) if tree.client.exists(parent) else []
        by_resource |= {f"{kind}/{name}": _read(tree, f"{parent}/{name}") for name in names}
    return {name: values for name, values in by_resource.items() if values}


def _read(tree: KafkaTree, path: str) -> dict[str, str]:
    return decode_config(tree.client.get(path)[0]) if tree.client.exists(path) else {}
