"""Which engine a command uses, and why; and that the embedded one serves its own process only."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import pytest

from jobs.adapters.spark import embedded_engine, engine_choice
from jobs.adapters.spark.closed_port import close_port, strangers_at, tcp_sockets
from jobs.adapters.spark.engine_choice import Engine, Place
from jobs.core.errors import ExitCode, MissingError, UsageError

VARIABLES: Final = ("PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS")

OTHER_USER: Final = 65534

WITH_A_STRANGER: Final = """\
import subprocess, sys
from jobs.adapters.spark import connect, embedded_engine
from jobs.adapters.spark.engine_choice import Engine, Place
from jobs.adapters.spark.session import start_session

port, _ = embedded_engine.started()
stranger = f"import socket, sys; own = socket.create_connection(('127.0.0.1', {port})); print(); sys.stdin.read()"
with subprocess.Popen([sys.executable, "-uc", stranger], stdin=-1, stdout=-1) as other:
    other.stdout.readline()
    try:
        start_session("a test", place=Place(Engine(sys.argv[1])))
    except Exception as error:
        print(type(error).__name__, error)
    other.kill()
"""

AT_A_QUESTION: Final = """\
import os, sys
from jobs.adapters.spark import connect
from jobs.core.signals import install_handlers

install_handlers()
connect.begin_embedded().range(1).count()
print("asked", flush=True)
os.read(0, 1)
"""


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(engine_choice, "_is_running", lambda: False)


def conf(folder: Path, master: str) -> str:
    folder.joinpath("spark-defaults.conf").write_text(f"spark.ui.enabled false\nspark.master   {master}\n")
    return str(folder)


@pytest.mark.parametrize(
    ("variables", "place", "used", "reason"),
    [
        ({}, Place(), Engine.EMBEDDED, "Sail"),
        ({}, Place(Engine.EMBEDDED), Engine.EMBEDDED, "as configured"),
        ({}, Place(Engine.SPARK), Engine.SPARK, "as configured"),
        ({}, Place(remote="sc://h"), Engine.SPARK, "a Spark Connect server is configured"),
        ({}, Place(warehouse="s3://bucket/folder"), Engine.SPARK, "in an object store"),
        ({"PYSPARK_GATEWAY_PORT": "1"}, Place(), Engine.SPARK, "spark-submit runs this command"),
        ({"PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell"}, Place(), Engine.SPARK, "the master yarn"),
        ({"PYSPARK_SUBMIT_ARGS": "--master local[4] pyspark-shell"}, Place(), Engine.EMBEDDED, "Sail"),
        ({"SPARK_CONF_DIR": "local[*]"}, Place(), Engine.EMBEDDED, "Sail"),
        ({"SPARK_CONF_DIR": "spark://h:7077"}, Place(), Engine.SPARK, "the master spark://h:7077"),
    ],
)
def test_the_engine_used(
    request: pytest.FixtureRequest, variables: dict[str, str], place: Place, used: Engine, reason: str
) -> None:
    monkeypatch, folder = request.getfixturevalue("monkeypatch"), request.getfixturevalue("tmp_path")
    for name, value in variables.items():
        monkeypatch.setenv(name, conf(folder, value) if name == "SPARK_CONF_DIR" else value)

    actual, cause = place.resolved()

    assert (actual, reason in cause) == (used, True), cause


def test_requests_that_contradict_each_other() -> None:
    with pytest.raises(UsageError, match="a Spark Connect server is configured"):
        Place(Engine.EMBEDDED, "sc://h").resolved()
    with pytest.raises(MissingError, match=r"object store.*use --engine spark"):
        Place(Engine.EMBEDDED, warehouse="s3://bucket/folder").resolved()


def test_spark_is_used_where_the_embedded_engine_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(engine_choice, "version", missing)

    assert Place().resolved() == (Engine.SPARK, "the package pysail is not installed")


def connects(port: int, seconds: float) -> bool:
    """Return whether a process of another user, if this one may be another, reaches the port."""

    def reach() -> None:
        if os.geteuid() == 0:
            os.setuid(OTHER_USER)
        socket.create_connection(("127.0.0.1", port), seconds).close()

    stranger = get_context("fork").Process(target=reach)
    stranger.start()
    stranger.join()
    return stranger.exitcode == 0


def test_folders_of_killed_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose process lives is kept, and so is one that is not complete."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    killed, new = (tmp_path / f"{prefix}surveyor-engine-x" for prefix in ("", "new-"))
    for folder in (killed, new):
        folder.mkdir()
        (folder / "lock").touch()
    living = embedded_engine._checkpoint_folder()  # noqa: SLF001

    last = embedded_engine._checkpoint_folder()  # noqa: SLF001

    assert {*tmp_path.iterdir()} == {new, living, last}


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_a_closed_port_lets_no_client_in_and_keeps_its_connection(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)) as ours, listening.accept()[0] as accepted:
        assert connects(port, 5.0)

        close_port(port, frozenset(tcp_sockets()))

        assert not connects(port, 1.0)
        ours.sendall(b"still here")
        assert accepted.recv(100) == b"still here"
        assert strangers_at(port, frozenset(tcp_sockets())) == set()


@pytest.mark.spark
@pytest.mark.parametrize("choice", [Engine.AUTO, Engine.EMBEDDED])
def test_a_stranger_ends_the_command(choice: Engine) -> None:
    """Nothing falls back to Spark, either: the other process may have run code."""
    arguments = [sys.executable, "-c", WITH_A_STRANGER, choice]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=120)

    assert done.stdout.startswith("StrangerError another process connected to the embedded engine"), done


@pytest.mark.spark
def test_an_interrupt_ends_a_question_while_the_engine_runs() -> None:
    """The engine has a handler of its own for Ctrl-C, after which a read of the terminal would continue."""
    with subprocess.Popen([sys.executable, "-c", AT_A_QUESTION], stdin=-1, stdout=-1, stderr=-1) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"asked\n"
        try:
            for _attempt in range(20):  # a signal between Python's last look and the read is noticed after the read
                process.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    assert process.wait(1) == ExitCode.INTERRUPTED
                    return
            pytest.fail("Ctrl-C has no effect on the question")
        finally:
            process.kill()
