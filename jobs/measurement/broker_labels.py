"""Brokers by the labels of Prometheus's series: an id, or the host of a broker.

A label of ids, as `broker_id`, has the broker's id. In other labels a value is compared with the hosts of the brokers'
endpoints, without its port: the whole name, or the first part of it if one of the two has no other part, as that of a
pod. Two brokers on one host cannot be told apart by a host. A label that the caller names may also end in the id, as
the pods of Strimzi.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from schemas.rows import Broker
from schemas.text import join_ids

LABELS_OF_IDS: Final = ("broker_id", "kafka_broker_id", "kafka_id", "node_id", "broker")
_PREFERRED: Final = (*LABELS_OF_IDS, "instance", "pod", "kubernetes_pod_name", "host", "hostname", "nodename")

_PORT: Final = re.compile(r":\d+$")
_LAST_NUMBER: Final = re.compile(r"-(\d+)$")
_ADDRESS: Final = re.compile(r"[\d.]+|.*:.*")
"""An IP address, of which no part names a host."""

_CHANGING: Final = re.compile(r"instance|node|ip$|id$|replica|container|endpoint", re.IGNORECASE)
"""Labels that may differ between series of one broker because it restarted or is read twice."""


@dataclass(frozen=True, slots=True)
class BrokerLabel:
    """The label that names brokers, the brokers by its values, and the reasons why other values name none."""

    name: str
    brokers: Mapping[str, int]
    others: Mapping[str, str] = field(default_factory=dict)


class BrokerHosts:
    """The brokers of a snapshot, by id, host and first part of the host."""

    def __init__(self, brokers: Iterable[Broker]) -> None:
        self.ids = set[int]()
        self._by_name = defaultdict[str, set[int]](set)
        self._by_part = defaultdict[str, set[int]](set)
        for broker in brokers:
            self.ids.add(broker.broker_id)
            for host in {broker.host, *(endpoint.host for endpoint in broker.endpoints or ())} - {None, ""}:
                name = str(host).lower()
                self._by_name[name].add(broker.broker_id)
                if not _ADDRESS.fullmatch(name):
                    self._by_part[name.partition(".")[0]].add(broker.broker_id)

    @property
    def names(self) -> list[str]:
        """The hosts."""
        return sorted(self._by_name)

    def broker_of(self, label: str, value: str, *, is_given: bool = False) -> int | str:
        """Return the broker that a label's value names, or the reason why it names none.

        `is_given`: the caller says that the label names brokers.
        """
        if value.isdecimal() and (is_given or label in LABELS_OF_IDS):
            return int(value) if int(value) in self.ids else f"broker {value} is unknown"
        name = _PORT.sub("", value).strip("[]").lower()
        part, _, others = name.partition(".")
        found = self._by_name.get(name) or (set() if _ADDRESS.fullmatch(name) else self._of_part(part, bool(others)))
        if len(found) > 1:
            return f"it is the host of brokers {join_ids(sorted(found))}"
        if not found and is_given and (number := _LAST_NUMBER.search(value)) and int(number[1]) in self.ids:
            return int(number[1])
        return next(iter(found), f"{name} is the host of no broker")

    def _of_part(self, part: str, has_others: bool) -> set[int]:  # noqa: FBT001 - a finding
        """Return the brokers on hosts that begin with a part, of which one has no other part."""
        return self._by_name.get(part, set()) if has_others else self._by_part.get(part, set())

    def label_among(self, series: Sequence[Mapping[str, str]], given: str | None = None) -> BrokerLabel | None:
        """Return the label that names most brokers, of those that one name; None if no label names any."""
        labels = {name for labels in series for name in labels} if given is None else {given}
        found = [self._label(name, series, is_given=given is not None) for name in sorted(labels)]
        ordered = sorted(found, key=lambda label: (-len({*label.brokers.values()}), _preference(label.name)))
        return ordered[0] if ordered and ordered[0].brokers else None

    def _label(self, name: str, series: Iterable[Mapping[str, str]], *, is_given: bool) -> BrokerLabel:
        values = {value for labels in series if (value := labels.get(name))}
        named = {value: self.broker_of(name, value, is_given=is_given) for value in sorted(values)}
        return BrokerLabel(
            name,
            {value: broker for value, broker in named.items() if isinstance(broker, int)},
            {value: reason for value, reason in named.items() if isinstance(reason, str)},
        )


def _preference(label: str) -> tuple[int, str]:
    return (_PREFERRED.index(label) if label in _PREFERRED else len(_PREFERRED), label)


def differing_labels(series: Iterable[Mapping[str, str]], label: BrokerLabel) -> dict[str, list[str]]:
    """Return the labels, with their values, in which series of one broker differ as those of two clusters would."""
    values = defaultdict[tuple[int, str], set[str]](set)
    for labels in series:
        broker = label.brokers.get(labels.get(label.name, ""))
        for name, value in labels.items() if broker is not None else ():
            if name not in {"__name__", label.name} and not _CHANGING.search(name):
                values[broker, name].add(value)  # type: ignore[index] # not None
    differing = {name for (_, name), own in values.items() if len(own) > 1}
    return {
        name: sorted({v for (_, of), own in values.items() if of == name for v in own}) for name in sorted(differing)
    }
