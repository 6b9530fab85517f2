"""What `surveyor status` learns from stored plans."""

from datetime import timedelta

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.repositories.warehouse_status import read_warehouse_status, removed_brokers
from schemas.rows import BrokerEpoch
from tests.jobs.support.rows.plan_rows import plan_record
from tests.jobs.support.rows.warehouse_rows import NOW, Cluster

BROKERS = [BrokerEpoch(broker_id=number, broker_epoch=100 + number) for number in range(6)]
REMOVAL = {"brokers": BROKERS, "created_at": NOW, "status": "committed"}


@pytest.mark.usefixtures("empty_tables")
def test_the_last_plan_that_removed_a_broker_that_is_still_registered(warehouse: Warehouse) -> None:
    plans = [
        plan_record("1", **REMOVAL | {"parameters": '{"remove_brokers": [1, 2, 3]}'}),
        plan_record("2", **REMOVAL | {"parameters": '{"replace": [[2, 5]]}', "created_at": NOW + timedelta(hours=1)}),
        plan_record("3", **REMOVAL | {"parameters": '{"remove_brokers": [4]}', "status": "rolled_back"}),
    ]
    warehouse.append("plans", plans)
    assert removed_brokers(warehouse, {1, 2, 3, 4, 5}, {1: 101, 2: 102, 3: 200, 4: 104, 5: 105}) == {1: "1", 2: "2"}


def test_a_plan_is_repeated_by_a_later_one_of_the_same_command(warehouse: Warehouse) -> None:
    Cluster(warehouse).snapshot()
    times = {"a": ("x", 0, "planned"), "b": ("x", 1, "committed"), "c": ("y", 0, "planned"), "d": (None, 0, "planned")}
    warehouse.append(
        "plans",
        [
            plan_record(plan_id, command=command, created_at=NOW + timedelta(hours=hours), status=status)
            for plan_id, (command, hours, status) in times.items()
        ],
    )
    assert read_warehouse_status(warehouse).repeated == {"a"}
