"""Every command that the pages show is one that the command line takes; every option that they name exists."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.command_checks import command_lines, fault, options
from tests.docs.markdown import code_spans, pages

HAND_WRITTEN: Final = [page for page in pages() if page.name != "commands.md"]
"""The usage lines of commands.md have words in place of values."""

OF_OTHERS: Final = {
    "--randomly-seed",
    *("--generate", "--verify", "--execute", "--topics-to-move"),  # kafka-reassign-partitions
    *("--create", "--alter", "--delete", "--describe", "--list", "--cancel"),  # kafka-topics, kafka-reassign-partitions
    *(
        "--jars",
        "--master",
        "--py-files",
        "--archives",
        "--files",
        "--properties-file",
        "--principal",
        "--keytab",
    ),  # spark-submit
    "--index-url",  # pip
    *("--conn-type", "--conn-host"),  # airflow connections add
    *("--markdown", "--partitions", "--rounds", "--planned", "--notified", "--failover"),  # make bench
    *("--driver-memory", "--clusters"),  # make bench
    *("--only", "--year", "--ten-million", "--sizes"),  # make bench-large
    *("--help", "--help-all", "--version", "--show-completion", "--install-completion"),
}


@pytest.mark.parametrize("page", HAND_WRITTEN, ids=lambda page: page.name)
def test_the_command_line_takes_what_the_page_shows(page: Path) -> None:
    lines = command_lines(page.read_text(encoding="utf-8"))
    faults = {" ".join(line): fault(line) for line in lines}
    assert {line: reason for line, reason in faults.items() if reason is not None} == {}


@pytest.mark.parametrize("page", HAND_WRITTEN, ids=lambda page: page.name)
def test_options_named_in_sentences_exist(page: Path) -> None:
    spans = code_spans(page.read_text(encoding="utf-8"))
    named = {option for span in spans for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", span)}
    assert named - options() - OF_OTHERS == set()


def test_commands_are_shown_at_all() -> None:
    counts = {page.name: len(list(command_lines(page.read_text(encoding="utf-8")))) for page in HAND_WRITTEN}
    assert counts["README.md"] >= 6
    assert sum(counts.values()) > 60


@pytest.mark.parametrize(
    "line",
    [
        "commit repair --aply",
        "commit",
        "commit repair --mode both",
        "plan expand --topic orders",
        "plan nosuch",
        "nosuch",
        "plan",
        "show diff one two",
    ],
)
def test_a_wrong_command_line_is_noticed(line: str) -> None:
    assert fault(line.split()) is not None
