"""Words that hide who acts: `python -m tests.docs.wording`, a part of `make check`.

Docs, docstrings, comments and string literals are searched. A word that a file needs is allowed in EXCEPTIONS, with the
reason.
"""

import ast
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
CODE: Final = ("jobs", "planner", "schemas", "airflow", "tests")
OWN: Final = "tests/docs/wording.py"

WORDS: Final[Mapping[str, str]] = {
    "nobody": "name the thing: no broker, no client; or use the passive voice",
    "somebody": "another client, another user",
    "everybody": "all brokers, all live brokers",
    "whoever": "the caller, the process that",
    "whom": "the broker that, the users that",
    "whomever": "the caller, the process that",
    "anew": "again, from scratch; a broker registers again",
    "beside": "along with, concurrently with, next to",
    "nevertheless": "still, anyway",
    "heretofore": "until now",
    "thereof": "of it",
    "seed 000": "cite the Kafka class",
    "seed 001": "cite the Kafka class",
    "seed 002": "cite the Kafka class",
    "seed 003": "cite the Kafka class",
    "seed 004": "cite the Kafka class",
}
"""What not to write, and what to write in its place."""

EXCEPTIONS: Final[Mapping[tuple[str, str], str]] = {}
"""By path and word, why it is needed there."""

_FORBIDDEN: Final = re.compile(rf"(?i)(?<![\w./-])({'|'.join(map(re.escape, WORDS))})(?![\w-])")


class Finding(NamedTuple):
    """A word, and where it is."""

    path: str
    line: int
    word: str


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that people read: of Python its comments and strings, with the number of their first line."""
    text = path.read_text()
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from enumerate(node.value.splitlines(), node.lineno)


def findings(root: Path) -> Iterator[Finding]:
    """Every forbidden word under a folder, in order."""
    files = [*root.glob("*.md"), *root.glob("docs/**/*.md")]
    files += [path for room in CODE for path in root.joinpath(room).rglob("*.py")]
    for path in sorted(files):
        name = str(path.relative_to(root))
        if name == OWN:
            continue
        for line, text in _texts(path):
            for match in _FORBIDDEN.finditer(text):
                word = match.group(1).lower()
                if (name, word) not in EXCEPTIONS:
                    yield Finding(name, line, word)


def main() -> int:
    """Print what was found; 1 where anything was."""
    found = sorted({*findings(ROOT)})
    for each in found:
        sys.stdout.write(f"{each.path}:{each.line}: {each.word}: write {WORDS[each.word]}\n")
    if found:
        counts = Counter(each.word for each in found).most_common()
        sys.stderr.write(f"{len(found)} words: {', '.join(f'{word} {count}' for word, count in counts)}\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
