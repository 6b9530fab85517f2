"""Leases in a warehouse, as a process leaves them that was killed."""

from datetime import UTC, datetime, timedelta

from jobs.adapters.delta.warehouse import Warehouse
from schemas.rows import LeaseRecord


def expire_lease(warehouse: Warehouse) -> None:
    """Set the deadline back, as if its holder had been killed a while ago."""
    (row,) = warehouse.typed_rows(LeaseRecord)
    past = datetime.now(UTC) - timedelta(seconds=1)
    warehouse.replace("leases", [{"token": row.token, "holder": row.holder, "deadline": past}])
