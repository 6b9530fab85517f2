"""Find words that hide which part acts, and names that are no nouns: `make check-words`.

Docs, docstrings, comments, string literals and names are searched for WORDS, and names also for IDENTIFIERS. So are the
configuration, the Makefile and the queries, as a whole. A word that a file needs is allowed in EXCEPTIONS, a name in
IDENTIFIER_EXCEPTIONS, with the reason.
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
CODE: Final = ("jobs", "planner", "schemas", "airflow", "bench", "tests")
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
    "unless given": "default",
    "way back": "rollback, reversal",
    "upon": "then, after, on",
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

IDENTIFIERS: Final[Mapping[str, str]] = {
    "all_of": "all_partitions, or what else it holds",
    "each": "the singular of what is iterated: partition, endpoint",
    "here": "source, this broker",
    "is_now": "after, new",
    "seen": "what was seen: view, last_seen",
    "somebody": "client, user",
    "there": "destination, that broker",
    "these": "the plural of what it holds",
    "those": "the plural of what it holds",
    "told": "notified_brokers, or what was sent",
    "was": "before, old",
    "what": "subject, noun, or the noun itself",
    "who": "client, user, caller",
    "whose": "owner",
    "why": "reason, cause",
}
"""Names that no variable, parameter, attribute, function or class has, and what to write in their place."""

IDENTIFIER_EXCEPTIONS: Final[Mapping[tuple[str, str], str]] = {
    ("jobs/runtime/suggestions.py", "what"): "a key of `due` in the JSON of `surveyor status`",
    ("jobs/snapshots/diff.py", "what"): "a column of `surveyor show diff`",
    ("jobs/sql_views/views.py", "who"): "a column of the view commit_log",
    ("planner/rules/lost_states.py", "seen"): "a column of the rows of lost states",
    ("schemas/rows.py", "who"): "a column of COMMITS",
}
"""By path and name, why it is needed there."""

_PHRASES: Final = "|".join(r"\s+".join(map(re.escape, phrase.split())) for phrase in WORDS)
_FORBIDDEN: Final = re.compile(rf"(?i)(?<![\w./-])({_PHRASES})(?![\w-])")
"""A phrase may be broken by the end of a line."""


class Finding(NamedTuple):
    """A word, and where it is."""

    path: str
    line: int
    word: str


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield what people read in a file, with the number of its first line: of Python comments, strings and names."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield 1, text
        return
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    for line, name in defined_names(tree):
        yield line, name.replace("_", " ")


def findings(root: Path, exceptions: Mapping[tuple[str, str], str] = EXCEPTIONS) -> Iterator[Finding]:
    """Yield every forbidden word under a folder, by path."""
    files = [*root.glob("*.md"), *root.glob("*.py"), *root.glob("docs/**/*.md")]
    files += [*root.glob("conf/*"), *root.glob("Makefile")]
    files += [path for room in CODE for suffix in ("py", "sql") for path in root.joinpath(room).rglob(f"*.{suffix}")]
    for path in sorted(files):
        name = str(path.relative_to(root))
        if name in OWN:
            continue
        for line, text in texts(path):
            for match in _FORBIDDEN.finditer(text):
                word = " ".join(match.group(1).lower().split())
                if (name, word) not in exceptions:
                    yield Finding(name, line + text.count("\n", 0, match.start()), word)


def defined_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of all variables, parameters, attributes, functions, classes and import aliases."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield node.lineno, name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield node.lineno, name


def identifier_findings(
    root: Path, exceptions: Mapping[tuple[str, str], str] = IDENTIFIER_EXCEPTIONS
) -> Iterator[Finding]:
    """Yield every name of IDENTIFIERS that code defines, with or without a leading underscore, by path."""
    for path in sorted(path for room in CODE for path in root.joinpath(room).rglob("*.py")):
        file = str(path.relative_to(root))
        for line, name in defined_names(ast.parse(path.read_text(encoding="utf-8"))):
            word = name.strip("_")
            if word in IDENTIFIERS and (file, word) not in exceptions:
                yield Finding(file, line, word)


def main() -> int:
    """Print what was found; return 1 if anything was."""
    found = sorted({*findings(ROOT), *identifier_findings(ROOT)})
    for finding in found:
        advice = WORDS.get(finding.word) or f"as a name {IDENTIFIERS[finding.word]}"
        sys.stdout.write(f"{finding.path}:{finding.line}: {finding.word}: write {advice}\n")
    if found:
        counts = Counter(finding.word for finding in found).most_common()
        sys.stderr.write(f"{len(found)} words: {', '.join(f'{word} {count}' for word, count in counts)}\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
