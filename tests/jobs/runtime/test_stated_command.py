"""The command as it was typed, which a plan keeps for its approval: every option of every question."""

import shlex
from typing import Final

import pytest

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
