"""Results as YAML, for `-o yaml`: the object that --json has, by the same names and with the same values.

What JSON has no type for, such as moments, is text here as there. Lists are written row by row, so that a million rows
are never one text. In: an object, and lists that belong to it. Out: pieces of text.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def to_yaml(result: Mapping[str, Any], lists: Mapping[str, Iterable[Mapping[str, Any]]]) -> Iterator[str]:
    """Write an object and its lists; each piece ends a line.

    >>> print("".join(to_yaml({"plan_id": "5f", "at": None}, {"rows": [{"topic": "no", "isr": [1]}], "more": []})))
    plan_id: 5f
    at: null
    rows:
    - topic: 'no'
      isr:
      - 1
    more: []
    <BLANKLINE>
    """
    if result:
        yield _dumped(result)
    for name, rows in lists.items():
        yield from _list(name, rows)


def _list(name: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    is_empty = True
    for row in rows:
        if is_empty:
            yield f"{name}:\n"
        is_empty = False
        yield _dumped([row])
    if is_empty:
        yield f"{name}: []\n"


def _dumped(value: Any) -> str:  # noqa: ANN401 - what JSON can hold
    import yaml  # noqa: PLC0415 - who is not asked for YAML does not wait for it

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # in C where libyaml is there: twenty times as quick
    plain = json.loads(json.dumps(value, default=str))
    text: str = yaml.dump(plain, Dumper=dumper, sort_keys=False, allow_unicode=True, width=10_000)
    return text
