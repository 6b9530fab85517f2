"""The approval of a write: by the terminal, by --apply without one, or in advance."""

import pytest

from jobs.core.errors import RefusedError
from jobs.runtime.confirmation import approval, ask
from jobs.runtime.review import Review

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
