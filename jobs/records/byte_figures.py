"""What a plan that balances bytes comes to, in bytes: kept with its parameters, shown to people and programs.

In: a Placement and the weights it was made with; or a stored plan's figures. Out: figures, or lines of them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from jobs.basics.units import shown_bytes
from planner.placement.problem import NOBODY, Brokers, Partitions, Placement

BROKERS_SHOWN: Final = 20


def byte_figures(brokers: Brokers, partitions: Partitions, placement: Placement) -> dict[str, Any]:
    """Return the bytes that are copied, and those of each broker, before and after; nothing without weights.

    `bytes_per_broker` has the least and the most of the brokers that may hold replicas, before and after.
    """
    held = placement.brokers.bytes
    if partitions.weights is None or held is None:
        return {}
    moves = placement.moves
    may_hold = set(map(str, brokers.ids[brokers.target].tolist()))
    by_broker = dict(zip(placement.brokers.names, zip(*(count.tolist() for count in held), strict=True), strict=True))
    spans = [[counts[when] for name, counts in by_broker.items() if name in may_hold] for when in (0, 1)]
    return {
        "moves_bytes": int(partitions.weights[moves.row[moves.target != NOBODY]].sum()),
        "bytes_per_broker": [[min(span), max(span)] for span in spans],
        "bytes_by_broker": {name: list(counts) for name, counts in by_broker.items()},
    }


def byte_lines(figures: Mapping[str, Any]) -> Iterator[str]:
    """Write these figures as people read them.

    >>> figures = {"moves_bytes": 2048, "bytes_per_broker": [[0, 4096], [2048, 2048]],
    ...     "bytes_by_broker": {"0": [4096, 2048], "1": [0, 2048]},
    ...     "sizes": {"source": "table", "digest": "9f", "known": 3, "assumed": 1}}
    >>> for line in byte_lines(figures):
    ...     print(line)
    moves 2.0 KiB
    bytes per broker 0 B..4.0 KiB → 2.0 KiB..2.0 KiB
    bytes by broker 0: 4.0 KiB → 2.0 KiB, 1: 0 B → 2.0 KiB
    sizes from the table, digest 9f; 1 of 4 partitions have none and count as the mean of their topic, or of all
    """
    if "moves_bytes" not in figures:
        return
    yield f"moves {shown_bytes(figures['moves_bytes'])}"
    before, after = (f"{shown_bytes(low)}..{shown_bytes(high)}" for low, high in figures["bytes_per_broker"])
    yield f"bytes per broker {before} → {after}"
    changed = {name: span for name, span in figures["bytes_by_broker"].items() if span[0] != span[1]}
    if changed:
        told = [f"{name}: {' → '.join(map(shown_bytes, span))}" for name, span in list(changed.items())[:BROKERS_SHOWN]]
        more = [f"and {len(changed) - BROKERS_SHOWN} more"] if len(changed) > BROKERS_SHOWN else []
        yield f"bytes by broker {', '.join([*told, *more])}"
    sizes = figures["sizes"]
    said = f"sizes from the {sizes['source']}, digest {sizes['digest']}"
    if sizes["assumed"]:
        whole = sizes["known"] + sizes["assumed"]
        said += f"; {sizes['assumed']} of {whole} partitions have none and count as the mean of their topic, or of all"
    yield said
