"""Results as YAML, for `-o yaml`: the same object as with --json, with the same names and values.

Values without a JSON type, such as timestamps, are strings. Lists are written row by row, so a million rows are never
in memory as one text.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def to_yaml(result: Mapping[str, Any], lists: Mapping[str, Iterable[Mapping[str, Any]]]) -> Iterator[str]:
    """Yield the YAML of an object and of its lists; each piece ends with a newline.

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
    import yaml  # noqa: PLC0415 - slow, and only needed for YAML

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # libyaml, if present, is twenty times as fast
    plain = json.loads(json.dumps(value, default=str))
    text: str = yaml.dump(plain, Dumper=dumper, sort_keys=False, allow_unicode=True, width=10_000)
    return text
