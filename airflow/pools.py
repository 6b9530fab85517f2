"""Print the pools of pools.json for each cluster, in the format of `airflow pools import`.

SURVEYOR_CLUSTERS=payments,orders python airflow/pools.py > pools.json
airflow pools import pools.json
"""

import json
import os
import sys
from pathlib import Path

FLEET = "surveyor_fleet"
"""The pool that all clusters share."""


def pools(clusters: list[str]) -> dict[str, dict[str, object]]:
    """Return the pools of each cluster and the one that they share; without clusters the names have no suffix."""
    ours = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    names = {f"{pool}.{cluster}": ours[pool] for cluster in clusters for pool in ours if pool != FLEET}
    return {**names, FLEET: ours[FLEET]} if names else ours


if __name__ == "__main__":
    listed = os.environ.get("SURVEYOR_CLUSTERS", "").split(",")
    json.dump(pools([name.strip() for name in listed if name.strip()]), sys.stdout, indent=4)
