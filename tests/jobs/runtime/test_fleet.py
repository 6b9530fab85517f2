"""Work on several clusters at once: what each one's failure, warnings and time cost the others, and the summary."""

import logging
from collections.abc import Callable
from threading import Event, Lock

import pytest

from jobs.core.errors import ExitCode, RefusedError, UnreadableError
from jobs.runtime.console import CommandResult, log, warn
from jobs.runtime.fleet import FleetSummary, Work, run_on_fleet, worst_code
from jobs.runtime.progress import progress
from jobs.runtime.settings import ClusterConf, Settings
from jobs.runtime.suggestions import Suggestion

SUMMARY = FleetSummary("test", figures=lambda result: {"offline": result["offline"]}, shown=(), worst_by=("offline",))


def _fleet(*names: str) -> Settings:
    members = tuple(
        Settings(name, "w", ClusterConf(), given_options={"cluster": ("--cluster", name), "conf_path": ("--conf", "f")})
        for name in names
    )
    return Settings("default", "w", ClusterConf(), fleet=members)


def _by_cluster(**work: Callable[[], CommandResult]) -> Work:
    return lambda settings: work[settings.cluster]()


def _healthy(offline: int = 0, code: ExitCode = ExitCode.DONE) -> CommandResult:
    return CommandResult({"offline": offline}, exit_code=code)


def _unreadable() -> CommandResult:
    raise UnreadableError("no ZooKeeper answered\nand more")


def _refused() -> CommandResult:
    raise RefusedError("a KRaft migration", {"snapshot_id": 4})


def _broken() -> CommandResult:
    raise ValueError("unforeseen")


def test_an_error_advises_commands_for_its_cluster() -> None:
    def nothing() -> CommandResult:
        raise UnreadableError("no snapshot, dropped by `surveyor vacuum`; take a `surveyor snapshot` first")

    done = run_on_fleet(_fleet("a"), None, _by_cluster(a=nothing), SUMMARY)

    advice = "dropped by `surveyor vacuum`; take a `surveyor snapshot --cluster a --conf f` first"
    assert done.json["clusters"]["a"]["error"] == f"no snapshot, {advice}"


@pytest.fixture(scope="module")
def outcomes() -> CommandResult:
    """The result for seven clusters, of which three fail."""
    work = _by_cluster(
        a=_healthy,
        b=lambda: _healthy(offline=2),
        c=_unreadable,
        d=_refused,
        e=_broken,
        f=lambda: _healthy(offline=9),
        g=lambda: _healthy(code=ExitCode.CHANGES),
    )
    return run_on_fleet(_fleet(*"abcdefg"), None, work, SUMMARY)


def test_each_outcome_is_a_row_the_worst_first(outcomes: CommandResult) -> None:
    rows = outcomes.fields["summary"]
    assert [(row["cluster"], row["outcome"], row["exit_code"], row["offline"]) for row in rows] == [
        ("e", "error", 1, None),
        ("c", "unreadable", 22, None),
        ("d", "refused", 23, None),
        ("g", "changes", 10, 0),
        ("f", "done", 0, 9),
        ("b", "done", 0, 2),
        ("a", "done", 0, 0),
    ]
    assert [row["reason"] for row in rows[1:4]] == ["no ZooKeeper answered; and more", "a KRaft migration", None]


def test_the_worst_exit_code_is_that_of_all(outcomes: CommandResult) -> None:
    fields = outcomes.fields
    assert (outcomes.exit_code, fields["exit_code"], fields["failed"]) == (ExitCode.ERROR, 1, 3)


def test_each_cluster_has_its_result_or_error(outcomes: CommandResult) -> None:
    clusters = outcomes.fields["clusters"]
    assert [*clusters] == [*"abcdefg"]
    assert clusters["c"] == {"error": "no ZooKeeper answered\nand more", "exit_code": 22}
    assert clusters["d"] == {"error": "a KRaft migration", "exit_code": 23, "snapshot_id": 4}
    assert clusters["f"] == {"offline": 9}


def test_failed_clusters_and_the_first_others_have_a_next_command() -> None:
    def work(settings: Settings) -> CommandResult:
        step = Suggestion("see", f"surveyor status --cluster {settings.cluster}")
        return _unreadable() if settings.cluster == "e" else CommandResult({"offline": 0}, steps=[step])

    steps = run_on_fleet(_fleet(*"abcde"), None, work, SUMMARY).steps
    assert [(step.what, step.command) for step in steps or ()] == [
        ("e: find the cause", "surveyor doctor --cluster e --conf f"),
        ("a: see", "surveyor status --cluster a"),
        ("b: see", "surveyor status --cluster b"),
        ("c: see", "surveyor status --cluster c"),
    ]


def test_a_cluster_that_waits_delays_no_other() -> None:
    """With two at once, the first waits until all others are done."""
    others_done, left, lock = Event(), [*"bcdefg"], Lock()

    def work(settings: Settings) -> CommandResult:
        if settings.cluster == "a":
            assert others_done.wait(60)
        else:
            with lock:
                left.remove(settings.cluster)
            if not left:
                others_done.set()
        return _healthy()

    assert run_on_fleet(_fleet(*"abcdefg"), 2, work, SUMMARY).exit_code is ExitCode.DONE


@pytest.mark.parametrize("parallel", [1, 3])
def test_no_more_than_the_bound_run_at_once(parallel: int) -> None:
    """As many as may run wait for each other, so that the bound is reached; it is never exceeded."""
    running, most, lock, reached = 0, 0, Lock(), Event()

    def work(_: Settings) -> CommandResult:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == parallel:
                reached.set()
        assert reached.wait(60)
        with lock:
            running -= 1
        return _healthy()

    run_on_fleet(_fleet(*"abcdefgh"), parallel, work, SUMMARY)
    assert most == parallel


def test_warnings_and_messages_are_those_of_their_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    together = {name: Event() for name in "ab"}

    def work(settings: Settings) -> CommandResult:
        other = "b" if settings.cluster == "a" else "a"
        warn(f"of {settings.cluster}")
        together[settings.cluster].set()
        assert together[other].wait(60)  # both have warned before either ends
        log("surveyor: a message")
        with progress("a step"):
            log("  ... half of it")
        return CommandResult({"offline": 0}, warnings=())

    result = run_on_fleet(_fleet("a", "b"), None, work, SUMMARY)
    assert {name: fields["warnings"] for name, fields in result.fields["clusters"].items()} == {
        "a": ["of a"],
        "b": ["of b"],
    }
    assert sorted(capsys.readouterr().err.splitlines()) == [
        "  ... a: half of it",
        "  ... b: half of it",
        "surveyor: a: a message",
        "surveyor: b: a message",
        "surveyor: warning: a: of a",
        "surveyor: warning: b: of b",
    ]


def test_an_unexpected_error_is_logged_with_its_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    run_on_fleet(_fleet("a"), None, lambda _: _broken(), SUMMARY)
    assert capsys.readouterr().err.startswith("surveyor: a: unexpected ValueError: unforeseen")


def test_an_unknown_code_counts_as_an_error() -> None:
    assert worst_code([ExitCode.UNREADABLE, ExitCode.FENCED]) is ExitCode.FENCED


def test_the_main_thread_has_no_cluster_after_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    run_on_fleet(_fleet("a"), None, lambda _: _healthy(), SUMMARY)
    assert not caplog.records
