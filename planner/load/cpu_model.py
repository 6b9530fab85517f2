"""The CPU of a broker as a weighted sum of byte rates: that leaders receive, that they send, that followers receive.

The share of all cores that a byte per second takes is the non-negative least-squares fit to measured hours of brokers.
Cruise Control has the same three terms in `LinearRegressionModelParameters`. Only the sums of products of the
measurements are needed, however many hours and brokers there are.
"""

from collections.abc import Mapping
from itertools import combinations
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from schemas.rows import BrokerLoad

TERMS: Final = ("leader_in", "leader_out", "follower_in")
"""Bytes per second from producers, to readers and followers, and from leaders."""

MEASURED: Final = (*TERMS, "cpu")

MODEL_COLUMNS: Final = (*(f"cpu_{term}" for term in TERMS), "cpu_r2")
"""The columns of LOAD_PROFILES that have the model."""

RATE_UNIT: Final = 1e6
"""Bytes per second in a unit of the sums of products."""

MIN_R2: Final = 0.6
"""R² of a fit from which on CPU is modelled."""

MIN_MEASUREMENTS: Final = 12
"""Hours of brokers that a fit needs: four for each term."""

MIN_INDEPENDENCE: Final = 1e-9
"""Smallest eigenvalue of terms that are told apart, of sums of products with 1 in the diagonal."""


MIN_GAIN: Final = 1e-12
"""Part of the squares of CPU by which another term must make the rest smaller: less is rounding."""


class CpuModel(Struct, frozen=True, kw_only=True):
    """Percent of all cores for each byte per second, and R², the part of the variance of CPU that they explain."""

    leader_in: float
    leader_out: float
    follower_in: float
    r2: float

    @property
    def is_modelled(self) -> bool:
        return self.r2 >= MIN_R2

    def of_broker(self, load: BrokerLoad) -> float | None:
        """Return the CPU of a broker, None if one of its rates is unknown."""
        rates = (load.bytes_in, load.bytes_out, load.replication_out, load.replication_in)
        factors = (self.leader_in, self.leader_out, self.leader_out, self.follower_in)
        parts = [factor * rate for factor, rate in zip(factors, rates, strict=True) if rate is not None]
        return sum(parts) if len(parts) == len(rates) else None

    def of_leaders(self, partitions: pa.Table) -> pa.Array:
        """Return the CPU of leaders, null if neither `bytes_in` nor `bytes_out` is known."""
        received, read, copied = (
            pc.fill_null(partitions[name], 0.0).to_numpy() for name in ("bytes_in", "bytes_out", "replication_out")
        )
        is_unknown = pc.and_(pc.is_null(partitions["bytes_in"]), pc.is_null(partitions["bytes_out"]))
        return pa.array(self.leader_in * received + self.leader_out * (read + copied), mask=is_unknown.to_numpy())


def stored_model(profile: pa.Table) -> CpuModel | None:
    """Return the model that rows of LOAD_PROFILES have; None without one, or if they lack its columns.

    >>> rows = [{"cpu_leader_in": 2e-6, "cpu_leader_out": 1e-6, "cpu_follower_in": 0.0, "cpu_r2": 0.9}]
    >>> stored_model(pa.Table.from_pylist(rows))
    CpuModel(leader_in=2e-06, leader_out=1e-06, follower_in=0.0, r2=0.9)
    """
    if not profile.num_rows or not {*MODEL_COLUMNS} <= {*profile.column_names}:
        return None
    values = {name.removeprefix("cpu_"): profile[name][0].as_py() for name in MODEL_COLUMNS}
    return None if values["r2"] is None else CpuModel(**values)


def product_name(first: str, second: str) -> str:
    """Return the name of a sum of products in the input of `fitted_model`."""
    return f"{first}_{second}"


def fitted_model(sums: Mapping[str, Any]) -> CpuModel | None:
    """Fit the terms to measured hours of brokers; None if there are too few, or CPU is the same in all.

    `sums` has their `count`, the sum `cpu`, and the sum of products of each two of MEASURED, with rates in RATE_UNIT.
    The least squares are those of the best subset of terms of which none is negative. Terms that depend on each other
    are no subset: with one of them left out the squares are the same.
    """
    count = sums["count"] or 0
    if count < MIN_MEASUREMENTS:
        return None
    products = np.array([[_product(sums, first, second) for second in MEASURED] for first in MEASURED])
    spread = products[-1, -1] - sums["cpu"] ** 2 / count
    if not spread > MIN_INDEPENDENCE * products[-1, -1]:
        return None
    least, best = products[-1, -1], np.zeros(len(TERMS))
    for size in range(1, len(TERMS) + 1):
        for subset in combinations(range(len(TERMS)), size):
            terms = np.array(subset)
            scale = np.sqrt(products[terms, terms])
            if not scale.all():
                continue
            scaled = products[np.ix_(terms, terms)] / np.outer(scale, scale)
            if np.linalg.eigvalsh(scaled)[0] < MIN_INDEPENDENCE:
                continue
            factors = np.linalg.solve(scaled, products[terms, -1] / scale) / scale
            squares = products[-1, -1] - factors @ products[terms, -1]
            if (factors >= 0).all() and squares < least - MIN_GAIN * products[-1, -1]:
                least, best = squares, np.zeros(len(TERMS))
                best[terms] = factors
    rates = (_rounded(factor / RATE_UNIT) for factor in best.tolist())
    return CpuModel(**dict(zip(TERMS, rates, strict=True)), r2=_rounded(1 - max(least, 0.0) / spread))


def _product(sums: Mapping[str, Any], first: str, second: str) -> float:
    name = product_name(first, second)
    return float(sums[name] if name in sums else sums[product_name(second, first)])


def _rounded(number: float) -> float:
    """Return a number with six digits, so that it does not depend on the order in which measurements were added up."""
    return float(f"{number:.6g}")


def model_text(model: CpuModel | None) -> str:
    """Return whether CPU is modelled, and else why it is not.

    >>> model_text(None)
    'not modelled: too few measured hours of brokers are known'
    >>> model_text(CpuModel(leader_in=1e-6, leader_out=0.0, follower_in=0.0, r2=0.314))
    'not modelled: R² 0.31 is below 0.6'
    >>> model_text(CpuModel(leader_in=1e-6, leader_out=0.0, follower_in=0.0, r2=0.97))
    'modelled, R² 0.97'
    """
    if model is None:
        return "not modelled: too few measured hours of brokers are known"
    if not model.is_modelled:
        return f"not modelled: R² {model.r2:.2f} is below {MIN_R2}"
    return f"modelled, R² {model.r2:.2f}"
