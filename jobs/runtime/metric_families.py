"""The metric families of both exporters, `surveyor metrics` and `surveyor control --metrics`, with their help texts.

Every name starts with `surveyor_`, and every sample has the label `cluster`.
"""

from collections.abc import Mapping
from typing import Any, Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

HELP: Final[Mapping[str, str]] = {
    "has_snapshot": "Whether the cluster has a snapshot, 0 or 1.",
    "snapshot_id": "Id of the last snapshot.",
    "last_snapshot_timestamp_seconds": "Start time of the last snapshot.",
    "last_snapshot_age_seconds": "Age of the last snapshot when these metrics were computed.",
    "last_snapshot_duration_seconds": "Duration of the last snapshot.",
    "topics": "Topics.",
    "partitions": "Partitions.",
    "offline_partitions": "Partitions without a live leader.",
    "under_replicated_partitions": "Partitions with a replica that is not in sync.",
    "under_min_isr_partitions": "Partitions with fewer in-sync replicas than min.insync.replicas.",
    "moving_partitions": "Partitions with a running or requested reassignment.",
    "without_state_partitions": "Partitions with an assignment that never had a leader.",
    "leader_outside_isr_partitions": (
        "Partitions led by a live broker that is not in the ISR; Kafka does not change them."
    ),
    "not_understood_partitions": "Partitions that are not understood; they may be moving, but have no other state.",
    "repairable_partitions": "Partitions that `plan reconcile` can repair without data loss.",
    "offline_without_isr_partitions": "Offline partitions without an in-sync replica that can lead.",
    "led_by_drained_partitions": "Partitions led by a drained broker, because no other replica was in sync.",
    "quarantined_znodes": "Znodes, or in KRaft responses, that are not understood.",
    "blocking_znodes": "Znodes that prevent a part of Kafka from starting.",
    "topic_configs_not_understood": (
        "Topics whose config could not be decoded completely; it allows no unclean election."
    ),
    "brokers": "Brokers: live, gone (unregistered but in use by partitions), not_understood (live as well).",
    "gone_broker_partitions": "Partitions that refer to a broker that is gone.",
    "controller_id": "Id in /controller, -1 for none.",
    "controller_epoch": "Number in /controller_epoch.",
    "drained_brokers": "Drained brokers.",
    "preferred_partitions": "Partitions whose preferred leader is this broker.",
    "preferred_partitions_not_led": "Partitions whose preferred replica is this broker but that it does not lead.",
    "imbalance_ratio": "Share of the partitions whose preferred replica is this broker that it does not lead.",
    "plans": "Plans by status, without the cycles of `surveyor control`.",
    "commit_rows_total": "Rows of plans processed by commits, by outcome.",
    "commit_rows_pending": "Rows with a recorded intent to write and no recorded outcome.",
    "last_commit_timestamp_seconds": "Time of the last record of a commit.",
    "last_commit_age_seconds": "Age of the last record of a commit when these metrics were computed.",
    "last_load_timestamp_seconds": "End of the newest hour with loads.",
    "last_load_age_seconds": "Time since the end of the newest hour with loads when these metrics were computed.",
    "last_load_sample_timestamp_seconds": "Time of the newest sample of partitions.",
    "last_load_sample_age_seconds": "Age of the newest sample of partitions when these metrics were computed.",
    "broker_bytes_in": "Bytes per second from producers to the broker as a leader, in the newest hour with loads.",
    "broker_replication_in": "Bytes per second from leaders to the broker as a follower, in that hour.",
    "broker_bytes_out": "Bytes per second from the broker to consumers, in that hour.",
    "broker_replication_out": "Bytes per second from the broker as a leader to followers, in that hour.",
    "broker_size_bytes": "Bytes of the broker's replicas on disk, at the end of that hour.",
    "broker_cpu_percent": "Percent of all cores that the broker used, in that hour.",
    "broker_disk_used_ratio": "Share of the capacity of its disks that the broker uses.",
    "broker_in_used_ratio": "Share of the capacity of its network that the broker receives, replication included.",
    "broker_out_used_ratio": "Share of the capacity of its network that the broker sends, replication included.",
    "broker_cpu_used_ratio": "Share of the capacity of its CPU that the broker uses.",
    "broker_disk_full_timestamp_seconds": (
        "When the disk is full as it grows now; log_dir is empty where log dirs are not known."
    ),
    "load_worst_broker_ratio": "Load of the broker with the most of a resource, as a multiple of its share.",
    "partitions_without_load": "Partitions without a load in the newest hour.",
    "control_active": "Whether this process is the controller.",
    "control_zookeeper_connected": "Whether ZooKeeper is connected.",
    "control_cycle_seconds": "Duration of a cycle.",
    "control_alter_partition_seconds": "Time between an AlterPartition request and its response.",
    "control_changes_total": "Changes written.",
    "control_stale_total": "Changes that were outdated.",
    "control_unwritten_seconds": "Age of the oldest row not yet in the warehouse.",
    "control_warehouse_failing": "Whether writing to the warehouse fails.",
    "control_leader_epoch_max": "The latest leader epoch.",
    "control_queue_batches": "Batches of requests that wait for a broker.",
    "control_queue_oldest_seconds": "Age of the oldest of them, or of the one sent.",
    "control_refusals": "Refusals in a row of a request that is retried.",
}


class MetricFamilies:
    """Makes the metrics of one cluster."""

    __slots__ = ()
    cluster: str

    def gauge(self, name: str, value: float | None, text: str = "") -> Metric:
        """Return a gauge with one value, or with no sample if it is None."""
        return self.by((), name, {} if value is None else {(): value}, text=text)

    def by(
        self,
        labels: str | tuple[str, ...],
        name: str,
        values: Mapping[Any, float],
        family: type[GaugeMetricFamily | CounterMetricFamily] = GaugeMetricFamily,
        text: str = "",
    ) -> Metric:
        """Return a metric with a sample for each key of `values`, which is a tuple if `labels` is one."""
        names = (labels,) if isinstance(labels, str) else labels
        metric = family(f"surveyor_{name}", text or HELP[name], labels=["cluster", *names])
        for key, value in values.items():
            metric.add_metric([self.cluster, *map(str, (key,) if isinstance(labels, str) else key)], value)
        return metric
