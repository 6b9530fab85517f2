"""CPU by what leaders receive and send and followers receive: a non-negative least-squares fit."""

import random
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from planner.load.cpu_model import MEASURED, TERMS, CpuModel, fitted_model, product_name
from planner.load.profiles import cpu_sums, measured_brokers, with_cpu
from schemas.rows import Row
from schemas.tables import BROKER_LOAD, BROKER_METRICS, PARTITIONS
from tests.planner.frames import CLUSTER, as_rows, frame
from tests.planner.load.samples import at

COUNTS: Final = {"cluster": CLUSTER, "leaders": 1, "replicas": 1}

MODEL: Final = CpuModel(leader_in=2.0, leader_out=1.0, follower_in=0.5, r2=0.9)


def _sums(measurements: Sequence[Sequence[float]]) -> Row:
    """Add up rows of the three terms, in megabytes per second, and CPU."""
    rows = np.array(measurements)
    products = rows.T @ rows
    named = {
        product_name(first, second): products[i, j]
        for i, first in enumerate(MEASURED)
        for j, second in enumerate(MEASURED)
    }
    return {"count": len(rows), "cpu": rows[:, 3].sum(), **named}


def _measurements(seed: int, factors: Sequence[float], noise: float, count: int = 60) -> list[list[float]]:
    chance = random.Random(seed)  # noqa: S311 - no secret
    rates = [[chance.uniform(0, 10) for _ in TERMS] for _ in range(count)]
    return [[*row, sum(map(float.__mul__, row, factors)) + noise * chance.uniform(-1, 1)] for row in rates]


@given(seed=st.integers(0, 2**32), factors=st.tuples(*[st.sampled_from([0.0, 0.1, 1.0, 30.0])] * 3))
def test_factors_that_made_the_cpu_are_found(seed: int, factors: tuple[float, ...]) -> None:
    model = fitted_model(_sums(_measurements(seed, factors, noise=0.0)))
    if not any(factors):
        assert model is None
        return
    assert model is not None
    found = [model.leader_in * 1e6, model.leader_out * 1e6, model.follower_in * 1e6, model.r2]
    assert found == pytest.approx([*factors, 1.0], rel=1e-4, abs=1e-4 * max(factors))


@given(seed=st.integers(0, 2**32), factors=st.tuples(*[st.floats(-3, 3)] * 3), noise=st.floats(0.1, 30))
def test_no_other_factors_are_closer(seed: int, factors: tuple[float, ...], noise: float) -> None:
    """The conditions of Karush, Kuhn and Tucker, which only the least squares meet: CPU may even fall with a rate.

    The slope of the squares is 0 in each factor above 0, and not negative in those that are 0.
    """
    rows = np.array(_measurements(seed, factors, noise))
    model = fitted_model(_sums(rows.tolist()))
    assert model is not None
    found = np.array([model.leader_in, model.leader_out, model.follower_in]) * 1e6
    rest = rows[:, :3] @ found - rows[:, 3]
    slope = rows[:, :3].T @ rest / np.linalg.norm(rows[:, :3]) / np.linalg.norm(rows[:, 3])
    assert (found >= 0).all()
    assert np.where(found > 0, abs(slope), np.minimum(slope, 0)) == pytest.approx(0, abs=1e-5)
    variance = ((rows[:, 3] - rows[:, 3].mean()) ** 2).sum()
    assert model.r2 == pytest.approx(1 - rest @ rest / variance, abs=1e-4, rel=1e-4)


def test_noise_is_not_modelled() -> None:
    model = fitted_model(_sums(_measurements(7, [0.1, 0.1, 0.1], noise=30.0)))
    assert model is not None
    assert (model.r2 < 0.6, model.is_modelled) == (True, False)


def test_rates_that_grow_together_are_one_term() -> None:
    """Of brokers that lead and follow alike only the sum of the two factors is known."""
    rows = [[float(number), 1.0 + number % 5, 2.0 * number, 6.0 * number] for number in range(1, 30)]
    model = fitted_model(_sums(rows))
    assert model is not None
    assert [model.leader_in + 2 * model.follower_in, model.leader_out] == pytest.approx([6e-6, 0.0])


@pytest.mark.parametrize("rows", [[[1.0, 2.0, 3.0, 4.0]] * 11, [[1.0 + number, 2.0, 3.0, 4.0] for number in range(20)]])
def test_few_hours_and_equal_cpu_tell_nothing(rows: list[list[float]]) -> None:
    assert fitted_model(_sums(rows)) is None


def _broker(minute: int, cpu: float | None, **columns: Any) -> Row:  # noqa: ANN401 - columns of BROKER_LOAD
    rates = {"bytes_in": 1e6, "replication_in": 2e6, "bytes_out": 3e6, "replication_out": 4e6}
    return {"hour": at(minute), "broker_id": 1, "cpu": cpu, **rates, **COUNTS, **columns}


def _metrics(minute: int, broker: int, **values: float) -> list[Row]:
    common = {"cluster": CLUSTER, "sampled_at": at(minute), "broker_id": broker, "source": "prometheus"}
    return [{**common, "metric": name, "value": value} for name, value in values.items()]


def test_measured_hours_of_brokers(spark: SparkSession) -> None:
    """Measured with the load, imported later, imported before the first sample; the rest is not known in full."""
    loads = [_broker(0, 10.0), _broker(60, None), _broker(120, None), _broker(180, 50.0, bytes_in=0.0)]
    metrics = [
        *_metrics(65, 1, cpu=20.0),
        *_metrics(70, 1, cpu=30.0),
        *_metrics(0, 2, cpu=40.0, bytes_in=5e6, bytes_out=1e6, replication_in=2e6, replication_out=1e6),
        *_metrics(0, 3, cpu=40.0, bytes_in=5e6),
        *({**row, "topic": "t"} for row in _metrics(120, 1, cpu=90.0)),
    ]
    rows = measured_brokers(frame(spark, loads, BROKER_LOAD), frame(spark, metrics, BROKER_METRICS))
    found = sorted(tuple(row[name] for name in MEASURED) for row in as_rows(rows))
    assert found == [
        (0.0, 7e6, 2e6, 50.0),
        (1e6, 7e6, 2e6, 10.0),
        (1e6, 7e6, 2e6, 25.0),
        (5e6, 2e6, 2e6, 40.0),
    ]


def test_the_sums_are_those_of_the_rows(spark: SparkSession) -> None:
    rows = _measurements(3, [1.0, 2.0, 3.0], noise=1.0)
    measured = [dict(zip(MEASURED, [*(rate * 1e6 for rate in row[:3]), row[3]], strict=True)) for row in rows]
    frame_of = spark.createDataFrame(measured, ", ".join(f"{name} double" for name in MEASURED))
    [sums] = as_rows(frame_of.transform(cpu_sums))
    assert sums == pytest.approx({name: value for name, value in _sums(rows).items() if name in sums})


@pytest.mark.parametrize("model", [MODEL, None, CpuModel(leader_in=2.0, leader_out=1.0, follower_in=0.5, r2=0.59)])
def test_the_cpu_of_partitions(spark: SparkSession, model: CpuModel | None) -> None:
    """The leader also sends to two followers; nothing is known without a rate, and without replicas none follows."""
    columns = "topic string, partition int, bytes_in double, bytes_out double"
    loads = spark.createDataFrame(
        [("t", 0, 10.0, 5.0), ("t", 1, None, 5.0), ("t", 2, None, None), ("gone", 0, 10.0, None)], columns
    )
    partitions = [{"topic": "t", "partition": number, "replicas": [1, 2, 3]} for number in range(3)]
    rows = as_rows(loads.transform(with_cpu, frame(spark, partitions, PARTITIONS), model))
    found = {(row["topic"], row["partition"]): (row["cpu_leader"], row["cpu_follower"], row["cpu_r2"]) for row in rows}
    none = (None, None, model and model.r2)
    assert found == (
        {
            ("t", 0): (20.0 + 5.0 + 20.0, 5.0, 0.9),
            ("t", 1): (5.0, 0.0, 0.9),
            ("t", 2): (None, None, 0.9),
            ("gone", 0): (20.0, 5.0, 0.9),
        }
        if model is MODEL
        else dict.fromkeys([("t", 0), ("t", 1), ("t", 2), ("gone", 0)], none)
    )
