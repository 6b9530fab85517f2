"""`--help` of a command shows its everyday options, `--help-all` the panels of the others, too."""

import pytest
from typer.testing import CliRunner

from jobs.cli import app
from jobs.runtime.command_pages import PANELS
from tests.docs.command_line import commands, root

EVERY = {" ".join(command.words): command for command in commands(root())}


def page(line: str, option: str) -> list[str]:
    return CliRunner().invoke(app, [*line.split(), option], env={"COLUMNS": "80"}).stdout.splitlines()


@pytest.mark.parametrize("line", EVERY)
def test_everyday_options_fit_a_screen(line: str) -> None:
    assert len(page(line, "--help")) <= 36
    assert max(map(len, page(line, "--help-all"))) <= 80


@pytest.mark.parametrize("line", EVERY)
def test_all_options_are_shown_once_in_their_panels(line: str) -> None:
    lines = page(line, "--help-all")
    titles = [text.rstrip(":") for text in lines if text.rstrip(":") in PANELS]
    options = {text.split()[0].rstrip(",") for text in lines if text.startswith("  -")}
    assert titles == [title for title in PANELS if title in titles]
    shown = [param for param in EVERY[line].command.params if not getattr(param, "hidden", False)]
    assert {param.opts[0] for param in shown if param.opts[0].startswith("-")} <= options
    assert [text for text in page(line, "--help") if text not in lines] == []


@pytest.mark.parametrize(
    ("line", "shown", "hidden"),
    [
        ("commit", "--apply", "--max-hold"),
        ("plan assign", "--replication-factor", "--start-index"),
        ("plan reassign", "--add-brokers", "--zookeeper"),
        ("show topics", "--snapshot", "--log-format"),
    ],
)
def test_options_for_few_users_are_named_by_one_line(line: str, shown: str, hidden: str) -> None:
    text = "\n".join(page(line, "--help"))
    assert (shown in text, hidden in text, "--help-all" in text) == (True, False, True)


def test_panels_have_options_that_exist() -> None:
    names = {param.name for command in EVERY.values() for param in command.command.params} | {"engine"}
    assert {name for panel in PANELS.values() for name in panel} - names == set()
