"""The approval of a write: by the terminal, by --apply without one, or in advance."""

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobs.core.errors import RefusedError
from jobs.runtime.approval import Review
from jobs.runtime.confirmation import approval, ask
from tests.jobs.support.kafka.real_cluster import eventually

REVIEW = Review("write them?", ["~ orders-0"], ["rack a loses a replica"])
DELETION = Review("type its name", expected_word="orders", unattended_refusal="orders would be deleted")


def test_yes_approves_in_advance() -> None:
    assert (approval(yes=True), approval(yes=False)) == (None, ask)


def test_without_a_terminal_apply_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(REVIEW)
    assert capsys.readouterr().err == "  warning: rack a loses a replica\n"


def test_without_a_terminal_a_deletion_is_refused() -> None:
    with pytest.raises(RefusedError, match="orders would be deleted"):
        ask(DELETION)


@pytest.mark.usefixtures("on_terminal")
@pytest.mark.parametrize(("typed", "approved"), [("orders", True), ("y", False), ("", False)])
def test_a_deletion_needs_the_expected_word(monkeypatch: pytest.MonkeyPatch, typed: str, *, approved: bool) -> None:
    monkeypatch.setattr("jobs.runtime.confirmation.typed_answer", lambda _: typed)

    assert ask(DELETION) is approved


@pytest.mark.usefixtures("on_terminal")
def test_a_terminal_shows_the_lines_before_it_asks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("jobs.runtime.confirmation.confirm", lambda _: False)

    assert not ask(REVIEW)
    assert capsys.readouterr().err == "~ orders-0\n"


ASKING = """\
import sys, time
from jobs.runtime.confirmation import confirm
print("at work", flush=True)
time.sleep(1)
print("agreed" if confirm("write it?") else "refused", flush=True)
"""


@pytest.mark.parametrize(("before", "answer", "result"), [("y\n", "n\n", "refused"), ("n\n", "y\n", "agreed")])
def test_keys_pressed_before_the_question_are_no_answer(tmp_path: Path, before: str, answer: str, result: str) -> None:
    ours, theirs = pty.openpty()
    output = tmp_path / "output"
    with (
        output.open("wb") as log,
        subprocess.Popen([sys.executable, "-c", ASKING], stdin=theirs, stdout=log, stderr=log) as process,
    ):
        try:
            assert eventually(lambda: "at work" in output.read_text())
            os.write(ours, before.encode())
            assert eventually(lambda: "write it?" in output.read_text())
            time.sleep(0.3)
            assert process.poll() is None
            os.write(ours, answer.encode())
            process.wait(20)
        finally:
            process.kill()
            os.close(ours)
            os.close(theirs)
    assert result in output.read_text()
