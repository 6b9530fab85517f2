"""The word lists find a word wherever people read it, and a name wherever code defines it, and only there."""

from pathlib import Path

import pytest

from tests.docs.wording import (
    EXCEPTIONS,
    IDENTIFIER_EXCEPTIONS,
    IDENTIFIERS,
    ROOT,
    WORDS,
    Finding,
    findings,
    identifier_findings,
)

CODE = '''"""The controller.

It tells whoever asks.
"""

nobody = 1  # kept for everybody
TEXT = f"{nobody} in office"
'''


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "jobs" / "a.py").write_text(CODE)
    (tmp_path / "docs" / "b.md").write_text("# B\n\nIt is read anew, by a controller that\nstays.\n")
    return tmp_path


def test_finds_words_in_docs_docstrings_comments_strings_and_names(root: Path) -> None:
    assert sorted(findings(root)) == [
        Finding("docs/b.md", 3, "anew"),
        Finding("docs/b.md", 3, "controller that stays"),
        Finding("jobs/a.py", 3, "whoever"),
        Finding("jobs/a.py", 6, "everybody"),
        Finding("jobs/a.py", 6, "nobody"),
        Finding("jobs/a.py", 7, "in office"),
    ]


@pytest.mark.parametrize("name", ["Makefile", "conf/surveyor.toml", "jobs/sql_views/replicas.sql"])
def test_finds_words_in_configuration_the_makefile_and_queries(root: Path, name: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("# brokers,\n# and who listens, whom to ask\n")
    assert Finding(name, 2, "whom") in set(findings(root))


def test_an_exception_allows_a_word_in_one_file(root: Path) -> None:
    exceptions = {("docs/b.md", "anew"): "a title of Kafka's", ("jobs/a.py", "anew"): "another file"}
    words = {(finding.path, finding.word) for finding in findings(root, exceptions)}
    assert ("docs/b.md", "anew") not in words
    assert ("docs/b.md", "controller that stays") in words


def test_names_and_paths_are_not_words(root: Path) -> None:
    (root / "docs" / "b.md").write_text("`jobs/nobody.py`, x.anew, nobody-else, anewly, Anew\n")
    assert [finding.word for finding in findings(root) if finding.path == "docs/b.md"] == ["anew"]


def test_exceptions_are_needed_and_explained() -> None:
    assert {word for _, word in EXCEPTIONS} <= WORDS.keys()
    assert all(EXCEPTIONS.values())


@pytest.mark.parametrize(
    "code",
    [
        "each = 1",
        "def f(each): ...",
        "def f(*each): ...",
        "f = lambda each: 1",
        "def each(): ...",
        "class each: ...",
        "for each in (): ...",
        "[1 for each in ()]",
        "with open('a') as each: ...",
        "try: ...\nexcept OSError as each: ...",
        "class A:\n    each: int",
        "self._each = 1",
        "(each := 1)",
        "import a as each",
        "match 1:\n    case [*each]: ...",
        "match 1:\n    case each: ...",
    ],
)
def test_finds_names_wherever_code_defines_them(root: Path, code: str) -> None:
    (root / "tests").mkdir()
    for folder in ("jobs", "tests"):
        (root / folder / "b.py").write_text(code)
    found = [(finding.path, finding.word) for finding in identifier_findings(root)]
    assert found == [("jobs/b.py", "each"), ("tests/b.py", "each")]


def test_names_only_read_or_containing_a_word_are_allowed(root: Path) -> None:
    (root / "jobs" / "b.py").write_text("print(each, a.each, each_side=1)\nfor_each = eaches = 'each'\n")
    assert not [*identifier_findings(root)]


def test_an_exception_allows_a_name_in_one_file(root: Path) -> None:
    for file in ("b.py", "c.py"):
        (root / "jobs" / file).write_text("why = 1")
    exceptions = {("jobs/b.py", "why"): "a column"}
    assert [*identifier_findings(root, exceptions)] == [Finding("jobs/c.py", 1, "why")]


def test_exceptions_of_names_are_needed_and_explained() -> None:
    assert all(IDENTIFIER_EXCEPTIONS.values())
    assert {word for _, word in IDENTIFIER_EXCEPTIONS} <= IDENTIFIERS.keys()
    needed = {(finding.path, finding.word) for finding in identifier_findings(ROOT, {})}
    assert needed >= IDENTIFIER_EXCEPTIONS.keys()
