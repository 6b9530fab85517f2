"""`plan reassign` by bytes: from a file or the table, with its messages, refusals and stable plan ids."""

import json
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.adapters.brokers.log_dirs import LOG_COLUMNS
from jobs.adapters.delta.warehouse import Warehouse
from jobs.snapshots.sizes import store_sizes
from schemas.rows import Row
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.rows.first_snapshot import first_snapshot_of
from tests.jobs.support.rows.warehouse_rows import NOW
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

pytestmark = pytest.mark.usefixtures("spark")

REPLICAS = {"big": {0: [0], 1: [1]}, "small": {0: [0], 1: [0], 2: [1], 3: [2]}}
SIZES = {("big", 0): 800, ("big", 1): 300, ("small", 0): 300, ("small", 1): 100, ("small", 2): 200, ("small", 3): 100}
Sizes = Mapping[tuple[str, int], int]


@pytest.fixture(scope="module")
def surveyor(module_tree: KafkaTree, tmp_path_factory: pytest.TempPathFactory) -> Surveyor:
    """Three brokers with 3, 2 and 1 replicas, of 1200, 500 and 100 bytes."""
    return first_snapshot_of(module_tree, tmp_path_factory.mktemp("sizes"), REPLICAS)


def _fill(warehouse: Warehouse, sizes: Sizes, *more: Row) -> None:
    """Fill the table with log sizes of each replica."""
    defaults = {"log_dir": "/a", "offset_lag": 0, "is_future": False, "taken_at": NOW}
    replicas = [
        {"broker_id": broker, "topic": key[0], "partition": key[1], "bytes": size}
        for key, size in sizes.items()
        for broker in REPLICAS[key[0]][key[1]]
    ]
    rows = [{**defaults, **row} for row in (*replicas, *more)]
    store_sizes(warehouse, [0, 1, 2, 9], pa.Table.from_pylist(rows, schema=LOG_COLUMNS))


def _file(tmp_path: Path, sizes: Sizes) -> str:
    path = tmp_path / "sizes.csv"
    lines = [f"{topic},{partition},{size}" for (topic, partition), size in sizes.items()]
    path.write_text("\n".join(["topic,partition,bytes", *lines]))
    return str(path)


def _bytes_after(surveyor: Surveyor, plan: Row, sizes: Sizes) -> Counter[int]:
    """Sum the bytes from the plan's changes, not from its figures."""
    rows = surveyor.warehouse.rows("changes", ("plan_id", "=", plan["plan_id"]))
    after = {(row["topic"], row["partition"]): row["replicas_after"] for row in rows}
    held: Counter[int] = Counter()
    for key in SIZES:
        for broker in after.get(key, REPLICAS[key[0]][key[1]]):
            held[broker] += sizes[key]
    return held


def test_bytes_are_evened_out(surveyor: Surveyor, tmp_path: Path) -> None:
    plan = surveyor.json("plan", "reassign", "--rebalance", "--sizes", _file(tmp_path, SIZES))
    held = _bytes_after(surveyor, plan, SIZES)
    assert max(held.values()) - min(held.values()) <= 300
    assert plan["bytes_per_broker"] == [[100, 1200], [min(held.values()), max(held.values())]]
    assert plan["bytes_by_broker"] == {
        str(broker): [before, held[broker]] for broker, before in ((0, 1200), (1, 500), (2, 100))
    }
    moved = [
        row for row in surveyor.warehouse.rows("changes", ("plan_id", "=", plan["plan_id"])) if row["adding_after"]
    ]
    assert plan["moves_bytes"] == sum(SIZES[row["topic"], row["partition"]] for row in moved) > 0
    assert plan["sizes"] == {"source": "file", "digest": plan["sizes"]["digest"], "known": 6, "assumed": 0}


def test_only_bytes_outside_the_band_move(surveyor: Surveyor, tmp_path: Path) -> None:
    """The mean is 600. Of the 1200 bytes 300 exceed it by more than half, which bring the 100 above 300 too."""
    even = "plan", "reassign", "--rebalance", "--sizes", _file(tmp_path, SIZES)
    ran = surveyor(*even, "--within", "50%", "--name", "half")
    plan = surveyor.json("show", "plan", "half")
    assert (_bytes_after(surveyor, plan, SIZES), json.loads(plan["parameters"])["within"]) == (
        Counter({0: 900, 1: 500, 2: 400}),
        0.5,
    )
    assert (
        "bytes per broker 100 B..1.2 KiB → 400 B..900 B\n  multiples of the mean 0.17..2.00 → 0.67..1.50" in ran.stdout
    )
    narrow = surveyor(*even).stdout
    assert "bytes stay uneven: bytes on brokers 0, 1, 2 differ from the mean by more than 1 %, and no move" in narrow


def test_equal_sizes_give_equal_plans_from_files_and_tables(surveyor: Surveyor, tmp_path: Path) -> None:
    as_json = tmp_path / "sizes.json"
    rows = [{"topic": topic, "partition": number, "bytes": size} for (topic, number), size in SIZES.items()]
    as_json.write_text(json.dumps({"partitions": rows[::-1]}))
    command = ("plan", "reassign", "--rebalance")
    plans = [surveyor.json(*command, "--sizes", path) for path in (_file(tmp_path, SIZES), str(as_json))]
    assert plans[0] == plans[1]
    other = surveyor.json(*command, "--sizes", _file(tmp_path, {**SIZES, ("big", 0): 801}))
    assert other["plan_id"] != plans[0]["plan_id"]
    _fill(surveyor.warehouse, SIZES)
    by_table = [surveyor.json(*command, "--by-size", "--name", "even") for _ in range(2)]
    assert by_table[0] == by_table[1]
    assert by_table[0]["sizes"] == {**plans[0]["sizes"], "source": "table"}


def test_a_plan_without_sizes_shows_no_bytes(surveyor: Surveyor) -> None:
    without = surveyor.json("plan", "reassign", "--rebalance")
    assert without["moves"] == 1
    assert not {"moves_bytes", "bytes_per_broker", "sizes"} & without.keys()


def test_table_counts_the_largest_log_that_belongs_there(surveyor: Surveyor) -> None:
    """A future log, a log on a broker that no longer has the partition, and a log of a deleted topic do not count."""
    on_zero = {"broker_id": 0, "topic": "small", "partition": 1}
    _fill(
        surveyor.warehouse,
        SIZES,
        {**on_zero, "bytes": 5000, "log_dir": "/b", "is_future": True},
        {**on_zero, "bytes": 6000, "broker_id": 9},
        {**on_zero, "bytes": 7000, "topic": "gone"},
    )
    ran = surveyor("plan", "reassign", "--rebalance", "--by-size", "--json")
    assert ran.json["bytes_per_broker"][0] == [100, 1200]
    assert "sizes taken from 2026-11-21 12:00:00 to 2026-11-21 12:00:00 UTC" in ran.stderr


def test_a_partition_that_has_moved_keeps_its_size(surveyor: Surveyor) -> None:
    """The table has only logs of its former replicas: the largest of them counts, for balance and for copied bytes."""
    left = {"topic": "big", "partition": 0, "taken_at": NOW - timedelta(hours=3)}
    others = {key: size for key, size in SIZES.items() if key != ("big", 0)}
    former = [{**left, "broker_id": 9, "bytes": SIZES["big", 0]}, {**left, "broker_id": 9, "log_dir": "/b", "bytes": 5}]
    _fill(surveyor.warehouse, others, *former)
    ran = surveyor("plan", "reassign", "--remove-brokers", "0", "--by-size", "--json")
    assert (ran.json["sizes"]["known"], ran.json["sizes"]["assumed"]) == (6, 0)
    assert (ran.json["moves"], ran.json["moves_bytes"]) == (3, 1200)
    assert "sizes taken from 2026-11-21 09:00:00 to 2026-11-21 12:00:00 UTC" in ran.stderr
    assert "; 1 partition has moved since, and the size of a former replica counts" in ran.stderr
    shown = surveyor("show", "plan", ran.json["plan_id"], "--json").json
    assert (shown["copies"]["bytes"], shown["copies"]["unknown"]) == (1200, 0)


def test_unknown_size_counts_as_the_topic_mean(surveyor: Surveyor, tmp_path: Path) -> None:
    known = {key: size for key, size in SIZES.items() if key != ("small", 3)}
    ran = surveyor("plan", "reassign", "--rebalance", "--sizes", _file(tmp_path, known))
    assert "surveyor: 1 of 6 partitions have no size; each counts as the mean of its topic" in ran.stderr
    assert "bytes per broker 200 B..1.2 KiB" in ran.stdout
    assert "; 1 of 6 partitions have none and count as the mean of their topic, or of all\n" in ran.stdout


def test_broker_is_emptied_by_bytes(surveyor: Surveyor, tmp_path: Path) -> None:
    plan = surveyor.json("plan", "reassign", "--remove-brokers", "0", "--sizes", _file(tmp_path, SIZES))
    held = _bytes_after(surveyor, plan, SIZES)
    assert (plan["moves"], plan["moves_bytes"], held) == (3, 1200, {1: 900, 2: 900})


def test_nothing_known(surveyor: Surveyor) -> None:
    store_sizes(surveyor.warehouse, [0, 1, 2, 9], LOG_COLUMNS.empty_table())
    ran = surveyor("plan", "reassign", "--rebalance", "--by-size")
    assert (ran.code, "run `surveyor sizes --" in ran.stderr) == (23, True)


def test_wrong_input_is_one_message(surveyor: Surveyor, tmp_path: Path) -> None:
    right = _file(tmp_path, SIZES)
    unknown = tmp_path / "unknown.csv"
    unknown.write_text("topic,partition,bytes\nbig,7,1\nnope,0,1\n")
    partly = tmp_path / "partly.csv"
    partly.write_text("topic,partition,bytes\nbig,0,1\nbig,7,1\nnope,0,1\n")
    huge = tmp_path / "huge.csv"
    huge.write_text("topic,partition,bytes\n" + "".join(f"{topic},{n},{2**60}\n" for topic, n in SIZES))
    moves = tmp_path / "moves.json"
    moves.write_text('{"partitions":[{"topic":"big","partition":0,"replicas":[1]}]}')
    wrong = [
        (["--rebalance", "--sizes", right, "--by-size"], 2, "exclude each other"),
        (["--rebalance", "--sizes", str(tmp_path / "none")], 2, "cannot read"),
        (["--rebalance", "--sizes", str(moves)], 2, "missing required field `bytes`"),
        (["--rebalance", "--sizes", str(unknown)], 23, "snapshot 1 do not agree: the snapshot has no big-7, nope-0;"),
        (["--rebalance", "--sizes", str(huge)], 23, "the sizes total more than"),
        (["--rebalance", "--within", "10%"], 2, "give --by-load, --by-size or --sizes too"),
        (["--rebalance", "--by-size", "--within", "10"], 2, "--within '10' is no share: expected a percentage"),
        (["--remove-brokers", "0", "--by-size", "--within", "9%"], 2, "--remove-brokers moves only what it must"),
        (["--reassignment-json-file", str(moves), "--by-size"], 2, "leave out --by-size"),
    ]
    ran = surveyor("plan", "reassign", "--rebalance", "--sizes", str(partly))
    left_out = "the snapshot has no big-7, nope-0; these sizes are left out"
    assert (ran.code, left_out in ran.stderr) == (0, True)
    warnings = surveyor.json("plan", "reassign", "--rebalance", "--sizes", str(partly))["warnings"]
    assert [text for text in warnings if text.endswith(left_out)] == [
        f"{partly} and snapshot 1 do not agree: {left_out}"
    ]
    failures = []
    for arguments, code, message in wrong:
        ran = surveyor("plan", "reassign", *arguments)
        if (ran.code, message in ran.stderr, "Traceback" in ran.stderr) != (code, True, False):
            failures.append((arguments, ran.code, ran.stderr))
    assert failures == []
