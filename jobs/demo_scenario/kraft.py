"""The demo on a KRaft cluster: its own controller carries the plans out, and elects leaders by itself.

Two nodes are killed one at a time, until one topic has no in-sync replica left; only an unclean election, which
must be planned explicitly, makes it available again.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from jobs.adapters.embedded.kraft import EmbeddedKRaftCluster
from jobs.core.errors import SurveyorError
from jobs.demo_scenario.plan_steps import PlanScenario
from jobs.demo_scenario.traffic import write_record
from jobs.repositories.snapshots import find_snapshot
from jobs.runtime.console import stdout
from jobs.runtime.progress import progress
from schemas.enums import NO_LEADER

CACHE: Final = "cache"
"""A topic of two replicas whose last records may be lost; the producer does not write to it."""


@dataclass(frozen=True, slots=True)
class KRaftScenario(PlanScenario):
    """The steps on a KRaft cluster of three nodes that are broker and controller at once."""

    cluster: EmbeddedKRaftCluster

    commit_options: ClassVar[list[str]] = []
    newcomer: ClassVar = 4
    first_brokers: ClassVar = (1, 2, 3)

    @property
    def address(self) -> dict[str, str]:
        return {"bootstrap_servers": ",".join(self.cluster.nodes[node].address for node in self.first_brokers)}

    def change(self) -> None:
        self.grow()
        leader = self.quorum_leader()
        self.create_cache(leader)
        self.lose_quorum_leader(leader)
        self.elect_uncleanly(leader)
        self.heading("All nodes are back; leadership returns to the preferred replicas")
        self.return_to_isrs(self.newcomer)
        self.balance()
        self.drain_for_maintenance(leader)
        self.show_history()

    def create_cache(self, leader: int) -> None:
        self.heading(f"A topic with two replicas, led by broker {self.newcomer}")
        by_hand = ["--replica-assignment", f"{self.newcomer}:{leader}"]
        self.surveyor("plan", "assign", "--topic", CACHE, *by_hand, "--apply", "--yes")
        self.surveyor("snapshot")

    def lose_quorum_leader(self, leader: int) -> None:
        self.heading(f"Node {leader}, the leader of the quorum, is killed; Kafka elects other leaders by itself")
        stdout().print(f"$ kill -9 of node {leader}")
        self.cluster.nodes[leader].kill()
        with progress(f"waiting for Kafka to replace node {leader} everywhere"):
            self.wait_until(lambda: self.is_out_of_isrs(leader))
        self.surveyor("snapshot")
        self.surveyor("status")

    def elect_uncleanly(self, behind: int) -> None:
        """Kill the only replica in sync of CACHE, restart the other one, and elect it."""
        self.heading(
            f"Only broker {self.newcomer} has the newest record of {CACHE}; it is killed, and {behind} is back"
        )
        with progress(f"writing a record to {CACHE}"):
            write_record(self.bootstrap, CACHE)
        stdout().print(f"$ kill -9 of broker {self.newcomer}; node {behind} restarts")
        self.cluster.nodes[self.newcomer].kill()
        with progress(f"waiting for {CACHE} to lose its leader"):
            self.wait_until(self.cache_is_offline)
        with progress(f"waiting for node {behind}"):
            self.return_to_isrs_but_cache(behind)
        stdout().print("\nA clean election has no candidate, and is rejected with the reason:")
        self.surveyor("plan", "recover", "--name", "clean")
        self.surveyor("show", "plan", "clean")
        stdout().print("\nAn unclean one loses the record; it is planned only if you ask for it:")
        self.surveyor("plan", "recover", "--allow-unclean", "--name", "accept-loss")
        self.surveyor("commit", "accept-loss")
        self.surveyor("commit", "accept-loss", "--apply", "--yes")
        self.verify("accept-loss")
        if self.cache_is_offline():
            raise SurveyorError(f"{CACHE} still has no leader")

    def drain_for_maintenance(self, broker: int) -> None:
        self.heading(f"Broker {broker} is drained for maintenance, and takes its leaders back")
        self.surveyor("plan", "drain", "--brokers", str(broker), "--apply", "--yes")
        self.surveyor("whatif", "--restart", str(broker))
        self.surveyor("plan", "undrain", "--brokers", str(broker), "--apply", "--yes")

    def return_to_isrs(self, node: int) -> None:
        """Restart a node, and wait until all replicas are in sync."""
        self.cluster.nodes[node].start()
        with progress(f"waiting for broker {node} to rejoin every ISR"):
            self.cluster.nodes[node].wait_ready()
            self.wait_until(self.all_in_sync)

    def return_to_isrs_but_cache(self, node: int) -> None:
        """Restart a node, and wait until it is in every ISR except the ISR of CACHE."""
        self.cluster.nodes[node].start()
        self.cluster.nodes[node].wait_ready()
        self.wait_until(
            lambda: all(
                node in state.isr for row, state in self.states() if node in row.replicas and row.topic != CACHE
            )
        )

    def cache_is_offline(self) -> bool:
        return all(state.leader == NO_LEADER for row, state in self.states() if row.topic == CACHE)

    def quorum_leader(self) -> int:
        """Return the leader of the quorum in the newest snapshot."""
        leader = find_snapshot(self.settings.warehouse).controller_id
        if leader is None:
            raise SurveyorError("the quorum has no leader")
        return leader
