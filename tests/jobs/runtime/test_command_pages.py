"""`--help` of a command shows its everyday options, `--help-all` the panels of the others, too."""

import shlex
from typing import Final

import pytest
from typer.testing import CliRunner

from jobs.cli import app
from jobs.runtime.command_pages import PANELS
from jobs.runtime.settings import ClusterConf, Settings
from jobs.runtime.suggestions import (
    CLUSTER_OPTIONS,
    COMMIT_OPTIONS,
    ENGINE_OPTIONS,
    OUTPUT_OPTIONS,
    given_options,
    stated_command,
)
from tests.docs.command_line import Command, commands, root

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


@pytest.mark.parametrize("line", ["", "plan"])
def test_a_group_has_one_page(line: str) -> None:
    assert page(line, "--help-all") == page(line, "--help") != []


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


LEFT_OUT: Final = {*CLUSTER_OPTIONS, *COMMIT_OPTIONS, *OUTPUT_OPTIONS, *ENGINE_OPTIONS}
QUESTIONS: Final = [command for command in commands(root()) if command.words[0] == "plan"]


def typed(question: Command) -> list[str]:
    """Every option of a question but those of the cluster, the format and the commit, with a value of its type."""
    words: list[str] = []
    for option in question.options.values():
        if option.name not in LEFT_OUT:
            value = option.metavar.partition("|")[0] if "|" in (option.metavar or "") else "1"
            words += [option.opts[-1], *([] if option.is_flag else [value])]
    return words


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.words[-1])
def test_every_option_of_a_question_is_stated(question: Command) -> None:
    words = typed(question)
    where = ["--zookeeper", "zk1:2181", "--warehouse", "w", "--json"]
    context = question.command.make_context(question.title, [*words, *where])
    settings = Settings("default", "w", ClusterConf(), given_options=given_options(context))

    stated = shlex.split(stated_command(settings, *question.words))
    assert stated[: len(question.words) + 1] == ["surveyor", *question.words]
    assert {word for word in words if word.startswith("--")} == {word for word in stated if word.startswith("--")}
    assert sorted(word.removesuffix(".0") for word in stated[len(question.words) + 1 :]) == sorted(words)


def test_every_kind_of_question_is_there() -> None:
    assert len(QUESTIONS) >= 10
