"""JSON files that commands take, in the formats of Kafka's tools."""

import json
from collections.abc import Sequence
from pathlib import Path

from schemas.rows import Row


def input_file(folder: Path, content: object) -> str:
    """Write text, or anything else as JSON; return the file's name."""
    path = folder / "input.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def reassignment_json(*targets: tuple[str, int, Sequence[int]]) -> Row:
    """Return the target replicas of partitions as `kafka-reassign-partitions` reads them."""
    rows = [{"topic": topic, "partition": partition, "replicas": replicas} for topic, partition, replicas in targets]
    return {"version": 1, "partitions": rows}


def reassignment_file(folder: Path, *targets: tuple[str, int, Sequence[int]]) -> str:
    """Write a file for `--reassignment-json-file`; return its name."""
    return input_file(folder, reassignment_json(*targets))
