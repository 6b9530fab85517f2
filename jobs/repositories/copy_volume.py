"""How much a plan copies: replicas and bytes of each wave, and how long that takes at a given rate.

Corresponds to `ReassignPartitionsCommand.calculateProposedMoveMap`. A throttle limits what each broker sends and
what it receives (KIP-73), so a wave lasts as long as the broker that copies most. Bytes are from the last `surveyor
sizes`: the largest log among a partition's replicas, or among its former replicas if it has moved since. They are not
part of a plan, so its id does not depend on them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.adapters.delta.table_schemas import schema_of
from jobs.core.arrow_rows import Bools, Ints, StoredRows
from jobs.core.units import format_bytes, format_duration
from planner.load.throttle_rates import Rates
from schemas.enums import NO_LEADER, Action
from schemas.rows import Change, Row
from schemas.text import WAVES_SHOWN, abbreviate, pluralise

Longs = npt.NDArray[np.int64]

VOLUME_COLUMNS: Final = ("wave", "action", "topic", "partition", "replicas_before", "replicas_after", "leader_before")
"""Columns of `changes` that the volume is computed from."""

VOLUME_SCHEMA: Final = schema_of("changes", *VOLUME_COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveVolume:
    """Bytes that one wave copies."""

    wave: int
    replicas: int
    bytes: int
    """Bytes of the replicas whose size is known."""
    unknown: int
    """Replicas of partitions without a known size."""
    received: Mapping[int, int]
    """Bytes that each broker receives."""
    sent: Mapping[int, int]
    """Bytes that each broker sends as a leader."""

    def seconds(self, rates: Rates) -> float:
        """Minimum duration in seconds at these rates."""
        if isinstance(rates, int):
            return max([*self.received.values(), *self.sent.values()], default=0) / rates
        received = [size / rates[broker].receive for broker, size in self.received.items() if broker in rates]
        sent = [size / rates[broker].send for broker, size in self.sent.items() if broker in rates]
        return max([*received, *sent], default=0.0)


@dataclass(frozen=True, slots=True)
class Volume:
    """Bytes that a plan copies, by wave, and that each broker receives in total."""

    waves: Sequence[WaveVolume]
    received: Mapping[int, int]

    @property
    def replicas(self) -> int:
        return sum(wave.replicas for wave in self.waves)

    @property
    def bytes(self) -> int:
        return sum(wave.bytes for wave in self.waves)

    @property
    def unknown(self) -> int:
        return sum(wave.unknown for wave in self.waves)

    @property
    def is_known(self) -> bool:
        """Whether the size of at least one copied replica is known."""
        return self.unknown < self.replicas

    def seconds(self, rates: Rates) -> float:
        """Minimum duration in seconds, one wave after the other."""
        return sum(wave.seconds(rates) for wave in self.waves)

    def json(self, rate: int | None) -> Row:
        """Return the fields of the JSON output; null if no size or no rate is known."""
        seconds = [wave.seconds(rate) if rate and self.is_known else None for wave in self.waves]
        waves = [
            {
                "wave": wave.wave,
                "replicas": wave.replicas,
                "bytes": wave.bytes if wave.unknown < wave.replicas else None,
                "unknown": wave.unknown,
                "seconds": time,
            }
            for wave, time in zip(self.waves, seconds, strict=True)
        ]
        return {
            "replicas": self.replicas,
            "bytes": self.bytes if self.is_known else None,
            "unknown": self.unknown,
            "rate": rate or None,
            "seconds": self.seconds(rate) if rate and self.is_known else None,
            "waves": waves,
        }

    def lines(self, rates: Rates | None, *, is_auto: bool = False, planned: int | None = None) -> Iterator[str]:
        """Return the lines to print; none if nothing is copied, or if neither a size is known nor a rate was given.

        `is_auto`: the rates follow the load, and may not be known yet. `planned`: the bytes by the sizes that the plan
        was made with, which are named if they differ.
        """
        if not self.replicas or not (self.is_known or rates):
            return
        if not self.is_known:
            copies, missing = f"copies {pluralise(self.replicas, 'replica')}", "how many bytes"
            if planned is not None:
                copies += f", {format_bytes(planned)} by the sizes that the plan was made with"
                missing = "how long that takes"
            yield f"{copies}; run `surveyor sizes` to find out {missing}"
            return
        partly = f", and {pluralise(self.unknown, 'replica')} of unknown size" if self.unknown else ""
        if rates:
            at = f"{rates} B/s a broker" if isinstance(rates, int) else "the rates of this hour"
            time = f"; at least {format_duration(self.seconds(rates))} at {at}"
        else:
            advice = "; --throttle, for instance 50MB/s, limits each broker and shows how long that takes"
            time = "" if is_auto else advice
        size = format_bytes(self.bytes)
        if planned is not None and format_bytes(planned) != size:
            size += f" by table sizes ({format_bytes(planned)} by the sizes that the plan was made with)"
        yield f"copies {pluralise(self.replicas, 'replica')}, {size}{partly}{time}"
        if len(self.waves) > 1:
            texts = [
                format_bytes(wave.bytes) + (f" in {format_duration(wave.seconds(rates))}" if rates else "")
                for wave in self.waves[:WAVES_SHOWN]
            ]
            ellipsis = ", ..." if len(self.waves) > WAVES_SHOWN else ""
            yield f"bytes copied by wave {', '.join(texts)}{ellipsis}"


def copying(changes: StoredRows) -> StoredRows:
    """Keep the reassignments that copy replicas; the rows have the columns VOLUME_COLUMNS."""
    adds_replicas = changes.gains("replicas_after", "replicas_before")
    return changes.where(changes.equal("action", Action.REASSIGN.value) & adds_replicas)


def volume(changes: StoredRows, logs: pa.Table) -> Volume:
    """Add up what the reassignments among the changes copy.

    `logs` has topic, partition, broker_id and bytes of the logs on the brokers, without future logs.
    """
    moves = copying(changes)
    if not len(moves):
        return Volume([], {})
    added = moves.gained("replicas_after", "replicas_before")
    copies = (added != NO_LEADER).sum(axis=1)
    sizes = _sizes(moves, logs)
    has_size, known_sizes = sizes >= 0, np.maximum(sizes, 0)
    waves = moves.table["wave"].to_numpy()
    leaders = moves.brokers("leader_before")[:, 0]
    volumes = []
    for wave in np.unique(waves).tolist():
        in_wave = waves == wave
        received = _by_broker(added[in_wave], known_sizes[in_wave])
        sent = _by_broker(leaders[in_wave][:, None], (known_sizes * copies)[in_wave])
        volumes.append(
            WaveVolume(
                wave=wave,
                replicas=int(copies[in_wave].sum()),
                bytes=int((known_sizes * copies)[in_wave].sum()),
                unknown=int(copies[in_wave & ~has_size].sum()),
                received=received,
                sent=sent,
            ),
        )
    return Volume(volumes, _by_broker(added, known_sizes))


def volume_rows(changes: Iterable[Change]) -> StoredRows:
    """Return the reassignments among pending changes as rows with the columns VOLUME_COLUMNS."""
    rows = [
        {name: getattr(change, name) for name in VOLUME_COLUMNS}
        for change in changes
        if change.action == Action.REASSIGN
    ]
    return StoredRows(pa.Table.from_pylist(rows, schema=VOLUME_SCHEMA))


def _by_broker(brokers: Ints, sizes: Any) -> dict[int, int]:  # noqa: ANN401 - an array of int64
    """Add the size of each row to every broker that the row names."""
    is_broker = brokers != NO_LEADER
    ids, indices = np.unique(brokers[is_broker], return_inverse=True)
    sums = np.zeros(len(ids), dtype=np.int64)
    np.add.at(sums, indices, np.broadcast_to(sizes[:, None], brokers.shape)[is_broker])
    return dict(zip(ids.tolist(), sums.tolist(), strict=True))


def largest_logs(rows: Longs, is_assigned: Bools, sizes: Longs, count: int) -> Longs:
    """Return the size of the largest log of each of `count` partitions, -1 without a log; each log is of one row.

    Logs of former replicas count only if no assigned replica has one: the partition moved after sizes were taken.

    >>> rows, sizes = np.array([0, 0, 1]), np.array([5, 9, 7])
    >>> largest_logs(rows, np.array([True, False, False]), sizes, 3).tolist()
    [5, 7, -1]
    """
    current, former = np.full((2, count), -1, dtype=np.int64)
    np.maximum.at(current, rows[is_assigned], sizes[is_assigned])
    np.maximum.at(former, rows[~is_assigned], sizes[~is_assigned])
    largest: Longs = np.where(current >= 0, current, former)
    return largest


def _sizes(moves: StoredRows, logs: pa.Table) -> Longs:
    """Return the largest log of each partition, -1 if none is known."""
    keys = moves.table.select(["topic", "partition"]).append_column("row", pa.array(np.arange(len(moves))))
    joined = keys.join(logs, ["topic", "partition"], join_type="inner")
    rows, brokers = joined["row"].to_numpy(), joined["broker_id"].to_numpy()
    held = (moves.brokers("replicas_before")[rows] == brokers[:, None]).any(axis=1)
    return largest_logs(rows, held, joined["bytes"].to_numpy(), len(moves))


def space_warnings(volume: Volume, usable: Mapping[int, int]) -> Iterator[str]:
    """Warn of brokers that receive more bytes than are usable on their disks, as far as that is known."""
    full = [
        f"{broker} ({format_bytes(count)}, {format_bytes(usable[broker])} left)"
        for broker, count in sorted(volume.received.items())
        if broker in usable and count > usable[broker]
    ]
    if full:
        receive = pluralise(len(full), "broker", "receives", "receive")
        yield f"{receive} more bytes than the disks have left: {abbreviate(full)}"
