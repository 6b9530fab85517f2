"""Commits under a controllership that the test keeps, as a resident controller makes them."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from jobs.adapters.brokers.channel_manager import ChannelManager
from jobs.adapters.brokers.responses import BrokerResponses
from jobs.adapters.clusters.zookeeper import ZooKeeperCluster
from jobs.adapters.zookeeper.cluster_state import read_brokers
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.execution.batch.batch_commit import HeldControllership
from jobs.execution.batch.notification import HoldBudget, notify
from jobs.execution.commit import apply_plan
from jobs.execution.preflight import check_before_commit
from jobs.preconditions.limits import CommitLimits
from jobs.repositories import broker_responses
from jobs.repositories.plans.plans_reader import read_plan
from jobs.runtime.cli_enums import Mode
from planner.broker_requests import notices_for
from schemas.rows import Change, PlanRecord
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.commands.settings import settings_of


def commit_held(
    surveyor: Surveyor, plan_id: str, held: Controllership, timeout_seconds: float = 60, **files: Path | None
) -> PlanRecord:
    """What `commit --apply` does in `timeout_seconds`, under a controllership that the test keeps.

    `files`: `conf_path`, `command_config` and `zookeeper_config`, where they are needed.
    """
    settings = settings_of(str(surveyor.folder), surveyor.hosts, **files)
    plan = read_plan(settings.warehouse, plan_id)
    limits = CommitLimits(max_plan_age=3600, max_changes=1000, allow_majority_dead=False)
    hold = HoldBudget(held.held() + timeout_seconds)

    def notify_brokers(changes: Sequence[Change]) -> None:
        with ChannelManager(str(held.controller_id), listener=settings.listener) as channels:
            notified = notify(held, channels, read_brokers(held.client), partial(notices_for, changes), hold)
        responses = BrokerResponses.of(notified.responses)
        broker_responses.record(settings.warehouse, responses.table(settings.warehouse.cluster))

    with ZooKeeperCluster(settings.zookeeper_endpoint) as cluster:
        assessment = check_before_commit(settings, cluster, plan, Mode.BATCH, limits)
        held_controllership = HeldControllership(held, notify_brokers)
        apply_plan(settings, cluster, plan, assessment, hold.max_hold, held=held_controllership)
    return read_plan(settings.warehouse, plan_id).row
