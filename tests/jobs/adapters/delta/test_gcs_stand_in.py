"""A warehouse at gs://, against a stand-in that is no proof of GCS."""

import json
from pathlib import Path
from urllib.request import urlopen

import pytest

from jobs.adapters.delta.store_check import require_conditional_writes
from jobs.adapters.delta.table_cleanup import TableFiles
from jobs.adapters.delta.warehouse import Warehouse
from tests.jobs.support.warehouses.gcs_stand_in import gcs_stand_in

pytestmark = pytest.mark.objects


def test_commits_are_conditional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each commit is put on the condition that its version does not exist yet."""
    with gcs_stand_in(tmp_path) as (account, conditions):
        monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(account))
        monkeypatch.setenv("GOOGLE_ALLOW_HTTP", "true")
        warehouse = Warehouse("gs://lake/surveyor", "default")
        warehouse.ensure_tables()
        warehouse.append("events", [{"snapshot_id": 1, "kind": "broker", "subject": "1", "after": "1"}])
        require_conditional_writes(warehouse.uri)

        assert [row["subject"] for row in warehouse.rows("events")] == ["1"]
        assert len(TableFiles(warehouse.path("events")).data()) == 1
        with urlopen(conditions) as answer:  # noqa: S310 - the stand-in
            puts = json.load(answer)
    commits = [condition for path, condition in puts.items() if "_delta_log/" in path and path.endswith(".json")]
    assert set(commits) == {"0"}
