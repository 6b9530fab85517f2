"""What tests/jobs/controller/model/kafka_tests.md says is tested is a test, and its cases are those that are run."""

import ast
import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.markdown import ROOT
from tests.jobs.controller.model.kafka_cases import CASES, FAILOVER_CASES, REASSIGNMENT_CASES

PAGE: Final = (ROOT / "tests/jobs/controller/model/kafka_tests.md").read_text(encoding="utf-8")
ROWS: Final = re.findall(r"^\| (\S.*?) \| (.*) \|$", PAGE, re.MULTILINE)
NAMED: Final = sorted({*re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)})
OF_CASES: Final = {
    name for key in (*CASES, *REASSIGNMENT_CASES, *FAILOVER_CASES) for name in re.findall(r"\b[A-Z]\.(test\w+)", key)
}


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_tests_exist(file: str, name: str) -> None:
    tree = ast.parse(Path(ROOT / file).read_text(encoding="utf-8"))

    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_cases_are_those_that_are_run() -> None:
    shown = {
        name
        for names, counterpart in ROWS
        if re.match(r"cases?(\.|;|,|$)", counterpart)
        for name in re.findall(r"\btest\w+", names)
    }

    assert shown - {"testResumeDeleteTopicWithRecoveredFollower"} == OF_CASES
    assert "as testDeletionWithBrokerOffline" in PAGE


def test_every_row_says_what_is_here() -> None:
    says_so = re.compile(r"`tests/|cases?\b|not the controller's")

    assert len(ROWS) > 50
    assert [names for names, counterpart in ROWS if names != "Kafka's test" and not says_so.search(counterpart)] == []
