"""The demo of a migration from ZooKeeper to KRaft: checked before, carried out step by step, and proved before its end.

Topics are changed by Kafka's Admin API while the controller writes to both, to show what the proof makes of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from jobs.adapters.embedded.migrating_cluster import CONTROLLER_ID, MigratingCluster
from jobs.core.errors import ExitCode, SurveyorError
from jobs.demo_scenario.scenario import ORDERS, TEST, DemoScenario
from jobs.repositories.snapshots import find_snapshot
from jobs.runtime.console import stdout
from jobs.runtime.progress import progress
from jobs.snapshots.migration_proof import prove

RETENTION: Final = "retention.ms"
BEFORE, DURING = "3600000", "7200000"
"""Values of RETENTION."""

CREATED: Final = "during"
"""The topic that is created while the controller writes to both."""

OWN_CHANGES: Final = {("topic config", ORDERS), ("topic created", CREATED)}
"""Intended changes, as the proof names them; partitions of CREATED are left out."""

PAGE: Final = "proof.html"


@dataclass(frozen=True, slots=True)
class MigrationScenario(DemoScenario):
    """The steps of the documented procedure, between a snapshot from ZooKeeper and one from KRaft."""

    cluster: MigratingCluster

    @property
    def address(self) -> dict[str, str]:
        """ZooKeeper, or the brokers once all of them have left it."""
        if all(broker.is_kraft for broker in self.cluster.brokers):
            return {"bootstrap_servers": self.bootstrap}
        return {"zookeeper": self.cluster.zookeeper_server.connect}

    def prepare(self) -> None:
        self.heading("Topics with configs, and an ACL, on three brokers with ZooKeeper")
        durable = {"min.insync.replicas": "2"}
        admin = self.admin()
        create_topics(
            admin,
            NewTopic(ORDERS, 12, 3, config={**durable, RETENTION: BEFORE}),
            NewTopic(TEST, 3, 3, config={**durable, "cleanup.policy": "compact,delete"}),
        )
        allowed = AclOperation.READ, AclPermissionType.ALLOW
        acl = AclBinding(ResourceType.TOPIC, ORDERS, ResourcePatternType.LITERAL, "User:alice", "*", *allowed)
        admin.create_acls([acl])[acl].result()
        say = stdout().print
        say(f"\n{ORDERS}: 12 partitions, min.insync.replicas=2, {RETENTION}={BEFORE}; User:alice may read it")
        say(f"{TEST}: 3 partitions, min.insync.replicas=2, cleanup.policy=compact,delete")
        self.surveyor("show", "brokers", "--now")

    def change(self) -> None:
        self.heading("What prevents the migration, or would be lost in it")
        self.surveyor("migration", "check")
        self.heading("The snapshot before, from ZooKeeper")
        self.surveyor("snapshot")
        before = self.newest_snapshot()
        self.start_migration()
        self.make_changes()
        self.leave_zookeeper()
        self.prove(before)
        self.finish()

    def start_migration(self) -> None:
        self.heading(f"KRaft controller {CONTROLLER_ID} starts, with migration enabled")
        self.cluster.add_controller()
        show_settings(f"the settings of controller {CONTROLLER_ID}", {}, self.cluster.controller.properties())
        self.heading("Brokers restart one at a time, with migration enabled; then the controller copies the metadata")
        old = self.broker_settings()
        self.cluster.enable_migration()
        self.restart_brokers(old)
        with progress("waiting until the metadata is copied"):
            self.cluster.wait_until_copied()
        stdout().print("\nThe controller has copied the metadata. It writes every change to ZooKeeper, too.")
        self.surveyor("migration", "check")

    def make_changes(self) -> None:
        """Change topics while the controller writes to ZooKeeper, too."""
        self.heading("Topics change during the migration, by Kafka's own tools")
        admin = self.admin()
        set_retention(admin, DURING)
        create_topics(admin, NewTopic(CREATED, 1, 3))
        stdout().print(f"\n{RETENTION} of {ORDERS} is {DURING} instead of {BEFORE}, and topic {CREATED} is created.")

    def leave_zookeeper(self) -> None:
        self.heading("Brokers restart one at a time, as brokers of KRaft")
        old = self.broker_settings()
        self.cluster.leave_zookeeper()
        self.restart_brokers(old)
        say = stdout().print
        say(f"\nAll brokers have left ZooKeeper: from here on commands have the environment {self.assignments}")

    def prove(self, before: int) -> None:
        """Prove that only the changes made on purpose are found, and nothing once they are undone."""
        self.heading("The snapshot after, from KRaft: the proof finds what was changed during the migration")
        after = self.snapshot_in_sync()
        self.surveyor("migration", "prove", str(before), str(after))
        if (found := self.changes_found(before, after)) != OWN_CHANGES:
            others = [" ".join(change) for change in sorted(found ^ OWN_CHANGES)]
            raise SurveyorError(
                f"changed in another terminal, or lost: {', '.join(others)}. Undo your own changes before this step"
            )
        say = stdout().print
        say("\nEach difference is a change of ours, made after the first snapshot; none is of the migration.")
        self.heading("The changes are undone, and the migration is proved")
        admin = self.admin()
        set_retention(admin, BEFORE)
        admin.delete_topics([CREATED])[CREATED].result()
        say(f"\n{RETENTION} of {ORDERS} is {BEFORE} again, and topic {CREATED} is deleted.")
        after = self.snapshot_in_sync()
        if self.surveyor("migration", "prove", str(before), str(after)) != ExitCode.DONE:
            raise SurveyorError("the migration is not proved")
        page = Path(self.warehouse_uri) / PAGE
        self.surveyor("report", "--migration", f"{before},{after}", "--out", str(page))

    def finish(self) -> None:
        self.heading("The controller restarts without ZooKeeper, which ends the migration; ZooKeeper stops")
        old = self.cluster.controller.properties()
        with progress(f"restarting controller {CONTROLLER_ID}"):
            self.cluster.finalize()
        show_settings(f"the settings of controller {CONTROLLER_ID}", old, self.cluster.controller.properties())
        self.surveyor("status")

    def restart_brokers(self, old: Mapping[str, str]) -> None:
        """Restart each broker after the other; `old` are the settings that broker 0 had."""
        show_settings("the settings of broker 0; those of the others are changed alike", old, self.broker_settings())
        for broker in self.cluster.brokers:
            with progress(f"restarting broker {broker.broker_id} until all replicas are in sync"):
                self.cluster.restart_broker(broker)

    def broker_settings(self) -> dict[str, str]:
        return self.cluster.brokers[0].properties()

    def snapshot_in_sync(self) -> int:
        """Take a snapshot once all replicas are in sync, and return its number."""
        self.wait_until(self.cluster.all_in_sync)
        self.surveyor("snapshot")
        return self.newest_snapshot()

    def newest_snapshot(self) -> int:
        return find_snapshot(self.settings.warehouse).snapshot_id

    def changes_found(self, before: int, after: int) -> set[tuple[str, str]]:
        """Return the differences of the proof, without differences in partitions of CREATED."""
        warehouse = self.settings.warehouse
        proof = prove(warehouse, find_snapshot(warehouse, before), find_snapshot(warehouse, after))
        found = {(difference.what, difference.subject) for difference in proof.differences}
        return {difference for difference in found if difference[1] != f"{CREATED}-0"}

    def admin(self) -> AdminClient:
        """Return a client, which must be referenced until its requests are done."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})


def create_topics(admin: AdminClient, *topics: NewTopic) -> None:
    for created in admin.create_topics(list(topics)).values():
        created.result()


def set_retention(admin: AdminClient, milliseconds: str) -> None:
    """Set the retention of ORDERS."""
    entry = ConfigEntry(RETENTION, milliseconds, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, ORDERS, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()


def show_settings(subject: str, old: Mapping[str, str], new: Mapping[str, str]) -> None:
    """Show what is removed from server.properties, and what is added."""
    say = stdout().print
    say(f"\nserver.properties, {subject}:", markup=False)
    for name in [*old, *(name for name in new if name not in old)]:
        if name in old and old[name] != new.get(name):
            say(f"  - {name}={old[name]}", markup=False)
        if name in new and old.get(name) != new[name]:
            say(f"  + {name}={new[name]}", markup=False)
