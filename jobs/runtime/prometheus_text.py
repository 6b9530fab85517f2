"""Metrics in Prometheus' text format, version 0.0.4: families with HELP and TYPE, one sample per line."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isinf, isnan
from typing import Final, Literal

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sample:
    """One value with its labels."""

    labels: Labels
    value: float


@dataclass(frozen=True, slots=True)
class Family:
    """A metric family; a counter's name ends in _total."""

    name: str
    help: str
    samples: tuple[Sample, ...]
    type: Literal["gauge", "counter"] = "gauge"


def merged(families: Iterable[Family]) -> list[Family]:
    """Merge families of the same name, for example of several clusters, since each name may occur only once."""
    joined: dict[str, Family] = {}
    for family in families:
        previous_samples = joined[family.name].samples if family.name in joined else ()
        joined[family.name] = Family(family.name, family.help, (*previous_samples, *family.samples), family.type)
    return list(joined.values())


def render(families: Iterable[Family]) -> str:
    r"""Format families as text; those without samples are left out.

    >>> print(render([Family("a_ratio", "Of \\ it.", (Sample({"b": 'x"y'}, 0.5), Sample({}, 2)))]), end="")
    # HELP a_ratio Of \\ it.
    # TYPE a_ratio gauge
    a_ratio{b="x\"y"} 0.5
    a_ratio 2
    """
    return "".join(f"{line}\n" for family in families if family.samples for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {_escaped(family.help)}"
    yield f"# TYPE {family.name} {family.type}"
    for sample in family.samples:
        yield f"{family.name}{_labels(sample.labels)} {_number(sample.value)}"


def _labels(labels: Labels) -> str:
    quote = '"'
    pairs = (f'{name}="{_escaped(value).replace(quote, chr(92) + quote)}"' for name, value in labels.items())
    return f"{{{','.join(pairs)}}}" if labels else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    """Format a value for Prometheus.

    >>> [_number(value) for value in (3, 0.25, 1.7e9, float("inf"), float("nan"))]
    ['3', '0.25', '1700000000.0', '+Inf', 'NaN']
    """
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
