"""The word list finds a word wherever people read it, and only there."""

from pathlib import Path

import pytest

from tests.docs.wording import EXCEPTIONS, WORDS, Finding, findings

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


def test_finds_words_in_docs_docstrings_comments_and_strings(root: Path) -> None:
    assert sorted(findings(root)) == [
        Finding("docs/b.md", 3, "anew"),
        Finding("docs/b.md", 3, "controller that stays"),
        Finding("jobs/a.py", 3, "whoever"),
        Finding("jobs/a.py", 6, "everybody"),
        Finding("jobs/a.py", 7, "in office"),
    ]


def test_an_exception_allows_a_word_in_one_file(root: Path) -> None:
    exceptions = {("docs/b.md", "anew"): "a title of Kafka's", ("jobs/a.py", "anew"): "another file"}
    words = {(each.path, each.word) for each in findings(root, exceptions)}
    assert ("docs/b.md", "anew") not in words
    assert ("docs/b.md", "controller that stays") in words


def test_names_and_paths_are_not_words(root: Path) -> None:
    (root / "docs" / "b.md").write_text("`jobs/nobody.py`, x.anew, nobody-else, anewly, Anew\n")
    assert [each.word for each in findings(root) if each.path == "docs/b.md"] == ["anew"]


def test_exceptions_are_needed_and_explained() -> None:
    assert {word for _, word in EXCEPTIONS} <= WORDS.keys()
    assert all(EXCEPTIONS.values())
