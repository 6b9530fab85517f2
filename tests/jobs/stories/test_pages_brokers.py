"""The pages from top to bottom: each command that they show is run, and what they show of an answer is what it is.

Before the first command of a section the cluster is brought about that it speaks of. Where an answer is another one
than a page shows, the page as it should be is written to a file, to be read and taken over. The runbook has a test of
its own; tests/docs/blocks.py names the tests that run the others.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from difflib import unified_diff
from pathlib import Path
from shlex import split
from typing import Final, NoReturn

import pytest
from typer.testing import CliRunner

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.cli import app
from jobs.console_output import status
from jobs.runtime.metrics_server import MetricsServer
from schemas.znode_codecs import Assignment, encode_assignment, encode_config
from tests.docs.blocks import ELSEWHERE, RUN, page_path
from tests.docs.markdown import code_blocks
from tests.jobs.support.commands.documented_commands import ROOT, said_here
from tests.jobs.support.commands.documented_output import rewritten
from tests.jobs.support.commands.paces import NO_TAKEOVER
from tests.jobs.support.kafka.command_environments import REAL, CommandEnvironments
from tests.jobs.support.zookeeper.kafka_tree import TOPIC_ID

SPREAD: Final = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
PROGRESS: Final = "  ... "
"""How a line begins that depends on how long something took."""

CHANGES, INTERRUPTED = 10, 130
CODES: Final = {
    ("status.md", "surveyor status --watch 5s"): INTERRUPTED,
    ("first-day.md", "surveyor status --watch 5s"): INTERRUPTED,
    ("status.md", "surveyor metrics --listen 9308"): INTERRUPTED,
    ("configuration.md", "surveyor plan reconcile --json --detailed-exitcode"): CHANGES,
}
"""Exit codes that are not 0: of a command stopped with Ctrl-C, and of a plan with changes under --detailed-exitcode."""

FILES: Final = {
    "elections.json": {"partitions": [{"topic": "audit", "partition": 0}]},
    "to-move.json": {"version": 1, "topics": [{"topic": "orders"}]},
}
"""What the pages name and do not show."""

EVERY: Final = os.environ.get("PAGES") == "all"
"""Whether variants of a question to Spark are asked, too, of which a section shows several without an answer."""

FOLDERS: Final = ("/var/lib/node_exporter", "/var/www")


def five_minutes(stage: CommandEnvironments) -> None:
    """Broker 2 is empty; broker 0 leads no partition since it was restarted."""
    stage.go_to(REAL)
    for topic, partitions in {"orders": 6, "clicks": 4}.items():
        stage.make_topic(topic, [[1, 0]] * partitions)
        stage.reorder({(topic, number): [0, 1] for number in range(0, partitions, 2)})


def small(stage: CommandEnvironments) -> None:
    """Broker 1 has just died; a snapshot knows it alive."""
    stage.lay_out("small", dict.fromkeys(range(3)), {"orders": SPREAD * 3, "clicks": [[0, 2], [2, 0]] * 2})
    stage.go_to("small").json("snapshot")
    stage.tree.unregister(1)


def fleet(stage: CommandEnvironments) -> None:
    """Ten brokers in three racks; broker 6 is gone; a partition has moved since the snapshot."""
    racks = dict(zip((0, 1, 2, 3, 4, 5, 7, 8, 107, 108), "abcabcabca", strict=True))
    topics = {
        "orders": SPREAD * 4,
        "payments": [[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 2,
        "payments-eu": [[1, 2], [2, 1]],
        "test": [[0, 1], [1, 0]] * 2,
        "ledger": [[7, 8, 0], [8, 7, 1], [7, 8, 2]],
        "audit": [[6, 0], [0, 6], [6, 1]],
    }
    tree = stage.lay_out("fleet", racks, topics)
    tree.write("/config/topics/payments", encode_config({"cleanup.policy": "compact"}))
    stage.go_to("fleet").json("snapshot")
    stage.at.json("plan", "reconcile", "--no-refresh", "--name", "repair")
    stage.lead("orders", [2, 5, 8, 11], 0, [0, 1, 2])
    moved = Assignment({0: [7, 8, 3], 1: [8, 7, 1], 2: [7, 8, 2]}, {}, {}, TOPIC_ID)
    tree.write("/brokers/topics/ledger", encode_assignment(moved))
    stage.lead("ledger", [0], 7, [7, 8, 3])


def sizes_known(stage: CommandEnvironments) -> None:
    """`surveyor sizes` has asked brokers 0 and 1 for the topic that is to go."""
    taken = datetime(2026, 11, 23, 9, 50, 16, tzinfo=UTC)
    one = {"topic": "test", "log_dir": "/d", "bytes": 209_715, "offset_lag": 0, "is_future": False, "taken_at": taken}
    stage.at.warehouse.append("sizes", [{**one, "partition": p, "broker_id": b} for p in range(4) for b in (0, 1)])


def waves(stage: CommandEnvironments) -> None:
    """Broker 3 is new."""
    stage.lay_out("waves", dict(enumerate("abca")), {"orders": SPREAD * 6})
    stage.go_to("waves").json("snapshot")


def grow(stage: CommandEnvironments) -> None:
    """Broker 2 is to hold a share of a topic that the others have."""
    stage.go_to(REAL)
    stage.make_topic("payments", [[0, 1], [1, 0]] * 3)
    question = ("--add-brokers", "2", "--topics", "payments", "--max-moves-per-broker", "2")
    stage.at.json("plan", "reassign", *question, "--name", "grow")


def outage(stage: CommandEnvironments) -> None:
    """Broker 2 has died, and no controller is there that answers."""
    pairs = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5, 0], [3, 1], [2, 5], [3, 5], [4, 1]]
    stage.lay_out("outage", dict.fromkeys(range(6)), {"orders": pairs})
    stage.go_to("outage")
    stage.tree.unregister(2)
    stage.at.json("plan", "reconcile", "--name", "repair")


def conf_file(stage: CommandEnvironments) -> None:
    """The file that the page links to, for this cluster."""
    substitutions = {"127.0.0.1:2181": stage.at.hosts, '"warehouse"': f'"{stage.at.folder}"'}
    Path("conf").mkdir()
    Path("conf/surveyor.toml").write_text(said_here((ROOT / "conf" / "surveyor.toml").read_text(), substitutions))


def new_topics(_: CommandEnvironments) -> None:
    """The file that the page shows."""
    (shown,) = (block for block in code_blocks(text("planning.md")) if block.startswith("[{"))
    Path("topics.json").write_text(shown)


def sizes_file(stage: CommandEnvironments) -> None:
    """The file that the page shows."""
    stage.go_to(REAL)
    (shown,) = (block for block in code_blocks(text("reassigning.md")) if block.startswith("{"))
    Path("sizes.json").write_text(shown)


SCENES: Final[Mapping[str, Mapping[str, Callable[[CommandEnvironments], object]]]] = {
    "README.md": {"Five minutes on your cluster": five_minutes},
    "status.md": {
        "status": small,
        "The report of a plan": lambda stage: stage.at.json("plan", "reconcile", "--name", "repair"),
    },
    "configuration.md": {
        "surveyor.toml": conf_file,
        "Results for programs": lambda stage: stage.go_to("small"),
    },
    "planning.md": {
        "Content of a plan": fleet,
        "New topics: assign": new_topics,
        "Deletion: delete": sizes_known,
        "After failures: reconcile": lambda stage: stage.go_to(REAL),
        "Preferred leaders: elect": lambda stage: stage.go_to("fleet"),
    },
    "reassigning.md": {
        "Questions": lambda stage: stage.go_to("fleet"),
        "Bytes": sizes_file,
        "Waves": waves,
        "Commit and progress": grow,
    },
    "first-day.md": {
        "On a schedule": lambda stage: stage.go_to(REAL),
        "Inspection": lambda stage: stage.go_to("small"),
        "Review": outage,
    },
}
"""The pages in the order in which they are run, and what comes before the first command of a section."""


def text(page: str) -> str:
    return page_path(page).read_text(encoding="utf-8")


class Terminal:
    """Where the commands of a page are typed; keeps those that end with another code than the page says."""

    def __init__(self, stage: CommandEnvironments, page: str, done: set[str]) -> None:
        self.stage, self.page, self.odd, self.done = stage, page, list[str](), done
        self.scenes, self.elsewhere = dict(SCENES[page]), ELSEWHERE.get(page, {})

    def answer(self, heading: str, line: str, shown: bool) -> list[str]:  # noqa: FBT001 - as `rewritten` calls it
        if heading in self.scenes:
            self.scenes.pop(heading)(self.stage)
        if any(line.startswith(begin) for begin in self.elsewhere) or not (shown or self._is_new(heading, line)):
            return []
        if line.startswith("unset"):
            self.stage.go_nowhere()
            return []
        return [answer for command in line.split(" && ") for answer in self.run(command)]

    def _is_new(self, heading: str, line: str) -> bool:
        """Tell whether it is to be run: always, or it is the first of its kind that Spark is asked in a section."""
        question = re.fullmatch(r"surveyor (snapshot|plan \w+|whatif)\b(?!.*--conf)(?:.*--name (\S+))?.*", line)
        if EVERY or question is None or self._is_named_again(question[2]):
            return True
        kinds = {line, f"{self.page} {heading} {question[1]}"}
        new = self.done.isdisjoint(kinds)
        self.done |= kinds
        return new

    def _is_named_again(self, plan: str | None) -> bool:
        return plan is not None and len(re.findall(rf"^    .* {plan}(?![\w-])", text(self.page), re.MULTILINE)) > 1

    def run(self, command: str) -> list[str]:
        substitutions = dict.fromkeys(FOLDERS, ".") | {"9308": "0"}
        _, *words = split(said_here(command, substitutions), comments=True)
        done = CliRunner().invoke(app, words, obj=NO_TAKEOVER)
        if done.exit_code != CODES.get((self.page, command), 0):
            self.odd.append(f"{command} ended with {done.exit_code}: {done.output}")
        lines = said_here(done.output, self.stage.substitutions).splitlines()
        return [line for line in lines if not line.startswith(PROGRESS)]


@pytest.fixture
def stage(
    cluster: EmbeddedCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[CommandEnvironments]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("jobs.runtime.console.UNLIMITED_COLUMNS", 80)  # as on a narrow terminal
    monkeypatch.setattr(MetricsServer, "serve_forever", interrupted)
    redraw = status.redraw
    monkeypatch.setattr(status, "redraw", lambda block: interrupted(redraw(block)))
    for name, content in FILES.items():
        Path(name).write_text(json.dumps(content))
    with CommandEnvironments(cluster, tmp_path, monkeypatch) as stage:
        yield stage


def interrupted(_: object) -> NoReturn:
    """Ctrl-C, as soon as something goes on."""
    raise KeyboardInterrupt


@pytest.mark.usefixtures("spark")
def test_the_pages_say_what_commands_answer(stage: CommandEnvironments, tmp_path: Path) -> None:
    faults: list[str] = []
    done = set[str]()
    assert tuple(SCENES) == RUN
    for page in RUN:
        terminal, shown = Terminal(stage, page, done), text(page)
        actual = rewritten(shown, terminal.answer)
        file = tmp_path / "found" / page
        file.parent.mkdir(exist_ok=True)
        file.write_text(actual, encoding="utf-8")
        faults += terminal.odd
        faults += unified_diff(shown.splitlines(), actual.splitlines(), page, str(file), lineterm="")

    assert not faults, "\n".join(faults)
