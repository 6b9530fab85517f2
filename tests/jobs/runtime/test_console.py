"""What people read where nobody looks at a terminal: in a pipe, a log, a file."""

import pytest

from jobs.runtime.console import show, table


def test_lines_of_a_table_in_a_pipe_end_where_their_text_does(capsys: pytest.CaptureFixture[str]) -> None:
    show(table("brokers", ["broker_id", "rack"], [{"broker_id": 1, "rack": "a"}, {"broker_id": 2, "rack": None}]))

    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if "\u2500" not in line and "\u2501" not in line] == [
        ["brokers"],
        ["broker_id", "\u2503", "rack"],
        ["1", "\u2502", "a"],
        ["2", "\u2502"],
    ]
    assert lines == [line.rstrip() for line in lines]
