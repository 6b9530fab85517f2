"""Queries that give the load of brokers and topics by hour: presets of known exporters, and files for others.

A preset is recognised by the names of metrics that exist. Its queries are evaluated at the end of each hour and return
the mean of that hour. Counters are read by `rate`, which knows restarts. An hour in which a broker's metrics were
missing for more than ten minutes is left out, because its mean may be too low.

The names of jmx_exporter depend on its rules: those of its example for Kafka 2.0 and of Strimzi (`jmx`), rules that
keep the attribute's name, as Confluent's (`jmx-count`), or none (`jmx-default`). `strimzi` is Strimzi's Metrics
Reporter, `node` is node_exporter, and `jvm` is the JVM's own load of the processor by jmx_exporter.
"""

import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

import msgspec
import yaml
from msgspec import Struct

from jobs.core.errors import UsageError
from jobs.core.text_decoding import read_text_file
from planner.load.resources import RESOURCES

METRICS: Final = (
    *("cpu", "bytes_in", "bytes_out", "replication_in", "replication_out"),
    *("network_in", "network_out", "disk_used", "disk_total"),
)
"""Metrics of table `broker_metrics`."""

COVERED: Final = 11
"""Of the twelve points of five minutes in an hour, those at which a broker must have had values."""

NAMES: Final = (
    "(?i)kafka_server_brokertopicmetrics_.*|java_lang_operatingsystem_processcpuload"
    "|node_cpu_seconds_total|node_network_.*"
)
"""Regex of the metrics that presets are recognised by."""

_KAFKA: Final = {
    "bytes_in": "BytesIn",
    "bytes_out": "BytesOut",
    "replication_in": "ReplicationBytesIn",
    "replication_out": "ReplicationBytesOut",
}
"""Names of Kafka's BrokerTopicMetrics, without PerSec."""

_BY_TOPIC: Final = ("bytes_in", "bytes_out")
"""Metrics that Kafka has by topic, too."""

_TRAFFIC: Final = {"in": "node_network_receive_bytes_total", "out": "node_network_transmit_bytes_total"}
_SPEED, _IS_UP = "node_network_speed_bytes", "node_network_up"
"""Metrics of node_exporter for network devices."""

_VIRTUAL: Final = r"lo|bond.*|br-.*|cali.*|cni.*|docker.*|dummy.*|flannel.*|tap.*|tun.*|veth.*|virbr.*|.*[.].*"
"""Network devices whose traffic other devices have, too, or that have none to other hosts."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query for a metric of brokers, or of topics on brokers, by hour."""

    metric: str
    promql: str
    by_topic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """The queries of an exporter. `selector` finds a series of each broker, whose labels show which one names it."""

    name: str
    selector: str
    queries_by: Callable[[str], Sequence[Query]]
    """Returns the queries for a label that names brokers."""
    capacities_by: Callable[[str], Mapping[str, str]] = lambda _: {}
    """Returns queries of the newest capacities by resource, for a label that names brokers."""
    is_counter: bool = False
    """Whether the values of the series decrease only when a broker restarts."""


def detected_presets(names: Iterable[str], matchers: str, presets: Collection[str]) -> list[Preset]:
    """Return the presets whose metrics exist, in order of preference.

    `matchers` are further matchers of labels, as `job="kafka"`. If there are `presets`, no others are considered.

    >>> [found.name for found in detected_presets(["kafka_server_brokertopicmetrics_bytesin_total"], "", ())]
    ['jmx']
    """
    existing = sorted(names)
    return [
        _MAKERS.get(preset, _kafka)(_Found(preset, match, matchers, frozenset(existing)))
        for preset, pattern in _PATTERNS.items()
        for name in existing
        if (match := re.fullmatch(pattern, name, re.IGNORECASE)) and (not presets or preset in presets)
    ]


@dataclass(frozen=True, slots=True)
class _Found:
    """A preset, the match of its metric, matchers of labels, and all metrics that exist."""

    preset: str
    match: re.Match[str]
    matchers: str
    existing: frozenset[str]


def _kafka(found: _Found) -> Preset:
    """Return the queries of Kafka's metrics, named as in the match of bytes in."""
    match = found.match

    def metric(name: str) -> str:
        if not match.re.groups:
            return match[0]
        own = match[1]
        in_case = _KAFKA[name].lower() if own.islower() else _KAFKA[name]
        return match[0].replace(own, in_case + own[len("BytesIn") :], 1)

    def selector(name: str, topic: str) -> str:
        attribute = "" if match.re.groups else f'name="{_KAFKA[name]}PerSec"'
        return _series(metric(name), attribute, found.matchers, topic)

    is_rate = match[0].lower().endswith("oneminuterate")
    total = selector("bytes_in", 'topic=""')

    def queries_by(label: str) -> list[Query]:
        def query(name: str, topic: str, *by: str) -> Query:
            mean = f"avg_over_time({selector(name, topic)}[1h])" if is_rate else f"rate({selector(name, topic)}[1h])"
            # max and not sum: two jobs may read the same exporter
            promql = f"max by ({', '.join((label, *by))}) ({mean}) {_if_covered(label, total)}"
            return Query(name, promql, bool(by))

        known = [name for name in _KAFKA if metric(name) in found.existing]
        of_brokers = [query(name, 'topic=""') for name in known]
        return [*of_brokers, *[query(name, 'topic!=""', "topic") for name in known if name in _BY_TOPIC]]

    return Preset(name=found.preset, selector=total, queries_by=queries_by, is_counter=not is_rate)


def _jvm(found: _Found) -> Preset:
    load = _series(found.match[0], found.matchers)

    def queries_by(label: str) -> list[Query]:
        return [Query("cpu", f"100 * max by ({label}) (avg_over_time({load}[1h])) {_if_covered(label, load)}")]

    return Preset(name=found.preset, selector=load, queries_by=queries_by)


def _node(found: _Found) -> Preset:
    one_cpu = _series(found.match[0], found.matchers, 'cpu="0"', 'mode="idle"')
    idle = _series(found.match[0], found.matchers, 'mode=~"idle|iowait"')

    def of_devices(metric: str) -> str:
        return _series(metric, found.matchers, f'device!~"{_VIRTUAL}"')

    def queries_by(label: str) -> list[Query]:
        of_cpus = f"avg by ({label}) (sum by ({label}, cpu) (rate({idle}[1h])))"
        sums = {
            f"network_{way}": f"sum by ({label}) (rate({of_devices(metric)}[1h]))"
            for way, metric in _TRAFFIC.items()
            if metric in found.existing
        }
        means = {"cpu": f"100 * (1 - {of_cpus})", **sums}
        return [Query(name, f"{mean} {_if_covered(label, one_cpu)}") for name, mean in means.items()]

    def capacities_by(label: str) -> Mapping[str, str]:
        if not {_SPEED, _IS_UP} <= found.existing:
            return {}
        is_up = f"and on ({label}, device) ({of_devices(_IS_UP)} == 1)"
        speed = f"max by ({label}) (({of_devices(_SPEED)} > 0) {is_up})"
        return {"in": speed, "out": speed}

    return Preset(name=found.preset, selector=one_cpu, queries_by=queries_by, capacities_by=capacities_by)


_PATTERNS: Final = {
    "jmx": r"kafka_server_brokertopicmetrics_(bytesin)_total",
    "strimzi": r"kafka_server_brokertopicmetrics_(bytesinpersec)_total",
    "jmx-count": r"kafka_server_brokertopicmetrics_(bytesinpersec)(?:_count(?:_total)?)?",
    "jmx-default": r"kafka_server_brokertopicmetrics_(?:count(?:_total)?|oneminuterate)",
    "node": r"node_cpu_seconds_total",
    "jvm": r"java_lang_operatingsystem_processcpuload",
}
"""Regex of the metric that shows a preset; a group in it is the metric of Kafka."""

_MAKERS: Final = {"node": _node, "jvm": _jvm}

PRESETS: Final = tuple(_PATTERNS)


def _series(metric: str, *matchers: str) -> str:
    return f"{metric}{{{','.join(filter(None, matchers))}}}"


def _if_covered(label: str, selector: str) -> str:
    """Return the condition that a broker had values of a series in nearly all of an hour.

    The range has no point at its beginning, which is the end of the hour before.
    """
    return f"and on ({label}) (max by ({label}) (count_over_time({selector}[59m:5m])) >= {COVERED})"


class QueryFile(Struct, frozen=True, forbid_unknown_fields=True):
    """Queries of a file by metric or resource. Their results name brokers by `broker_label`; null to find it."""

    brokers: dict[str, str] = {}
    topics: dict[str, str] = {}
    """Their results also have a label `topic`."""
    capacity: dict[str, str] = {}
    broker_label: str | None = None

    @property
    def queries(self) -> list[Query]:
        of_brokers = [Query(metric, promql) for metric, promql in self.brokers.items()]
        return of_brokers + [Query(metric, promql, by_topic=True) for metric, promql in self.topics.items()]


_EXAMPLE: Final = "sections brokers, topics and capacity, as in docs/load.md"


def read_query_file(path: Path) -> QueryFile:
    """Read a file of queries, TOML or YAML; raise UsageError for the first fault."""
    text = read_text_file(path)
    try:
        content = yaml.safe_load(text) if path.suffix in {".yaml", ".yml"} else tomllib.loads(text)
        file = msgspec.convert(content, QueryFile)
    except (tomllib.TOMLDecodeError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: {' '.join(str(error).split())}; expected {_EXAMPLE}") from None
    known = {"brokers": METRICS, "topics": METRICS, "capacity": RESOURCES}
    for section, names in known.items():
        for name in getattr(file, section):
            if name not in names:
                near = get_close_matches(name, names, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise UsageError(f"{path}: {section} has {name!r}{hint}; known are {', '.join(names)}")
    if not (file.queries or file.capacity):
        raise UsageError(f"{path} has no query; expected {_EXAMPLE}")
    return file
