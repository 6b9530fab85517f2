"""Find words that hide which part acts: `make check-words`.

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
OWN: Final = ("tests/docs/wording.py", "tests/docs/test_wording.py")

WORDS: Final[Mapping[str, str]] = {
    "nobody": "name the thing: no broker, no client; or use the passive voice",
    "somebody": "another client, another user",
    "anybody": "any client, any user; or use the passive voice",
    "everybody": "all brokers, all live brokers",
    "whoever": "the caller, the process that",
    "whosoever": "the caller, the process that",
    "whom": "the broker that, the users that",
    "whomever": "the caller, the process that",
    "whomsoever": "the caller, the process that",
    "anew": "again, from scratch; a broker registers again",
    "beside": "along with, concurrently with, next to",
    "nevertheless": "still, anyway",
    "heretofore": "until now",
    "hitherto": "until now",
    "thereof": "of it",
    "let in": "accept, authenticate",
    "in sight": "in progress, visible",
    "in office": "while it is the controller",
    "out of office": "no longer the controller",
    "own up": "record, audit",
    "owned up": "recorded, audited",
    "owns up": "records, audits",
    "handed in": "submitted",
    "controller that stays": "resident controller",
    "seed 000": "cite the Kafka class",
    "seed 001": "cite the Kafka class",
    "seed 002": "cite the Kafka class",
    "seed 003": "cite the Kafka class",
    "seed 004": "cite the Kafka class",
}
"""What not to write, and what to write in its place."""

EXCEPTIONS: Final[Mapping[tuple[str, str], str]] = {}
"""By path and word, why it is needed there."""

_PHRASES: Final = "|".join(r"\s+".join(map(re.escape, phrase.split())) for phrase in WORDS)
_FORBIDDEN: Final = re.compile(rf"(?i)(?<![\w./-])({_PHRASES})(?![\w-])")
"""A phrase may be broken by the end of a line."""


class Finding(NamedTuple):
    """A word, and where it is."""

    path: str
    line: int
    word: str


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield what people read in a file, with the number of its first line: of Python the comments and strings."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield 1, text
        return
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def findings(root: Path, exceptions: Mapping[tuple[str, str], str] = EXCEPTIONS) -> Iterator[Finding]:
    """Yield every forbidden word under a folder, by path."""
    files = [*root.glob("*.md"), *root.glob("docs/**/*.md")]
    files += [path for room in CODE for path in root.joinpath(room).rglob("*.py")]
    for path in sorted(files):
        name = str(path.relative_to(root))
        if name in OWN:
            continue
        for line, text in texts(path):
            for match in _FORBIDDEN.finditer(text):
                word = " ".join(match.group(1).lower().split())
                if (name, word) not in exceptions:
                    yield Finding(name, line + text.count("\n", 0, match.start()), word)


def main() -> int:
    """Print what was found; return 1 if anything was."""
    found = sorted({*findings(ROOT)})
    for each in found:
        sys.stdout.write(f"{each.path}:{each.line}: {each.word}: write {WORDS[each.word]}\n")
    if found:
        counts = Counter(each.word for each in found).most_common()
        sys.stderr.write(f"{len(found)} words: {', '.join(f'{word} {count}' for word, count in counts)}\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
