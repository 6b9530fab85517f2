"""Output for people that does not go to a terminal, but to a pipe, a log or a file."""

import pytest

from jobs.runtime.console import log, table, wrapped
from jobs.runtime.output import show


def test_table_lines_in_a_pipe_have_no_trailing_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    show(table("brokers", ["broker_id", "rack"], [{"broker_id": 1, "rack": "a"}, {"broker_id": 2, "rack": None}]))

    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if "\u2500" not in line and "\u2501" not in line] == [
        ["brokers"],
        ["broker_id", "\u2503", "rack"],
        ["1", "\u2502", "a"],
        ["2", "\u2502"],
    ]
    assert lines == [line.rstrip() for line in lines]


def test_what_a_terminal_would_obey_is_shown_instead(capsys: pytest.CaptureFixture[str]) -> None:
    """The lease holder, a cluster's id and a setting's value come from znodes that other clients write."""
    odd = "rack \x1b[2J\x9b\x07\r\u202e end"

    log(odd)
    show(f"{odd}\nnext line")
    show(table(odd, ["rack"], [{"rack": odd}]))

    printed = capsys.readouterr()
    shown = r"rack \x1b[2J\x9b\x07\r\u202e end"
    assert printed.err == f"{shown}\n"
    assert printed.out.splitlines()[:3] == [shown, "next line", shown]
    assert printed.out.count(shown) == 3
    assert not {"\x1b", "\x9b", "\x07", "\r", "\u202e"} & {*printed.out, *printed.err}


def test_a_line_to_paste_is_not_broken() -> None:
    setting = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    assert wrapped(f"set {setting} there", "   -> ") == ["   -> set", f"      {setting}", "      there"]
