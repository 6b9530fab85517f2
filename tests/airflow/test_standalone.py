"""The processes of `make airflow` end with it, whatever ends it."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.airflow.end_processes import processes

PROGRAM = """
import sys
from tests.airflow.standalone import exit_on_signals, running
home = sys.argv[1]
exit_on_signals()
# components in sessions of their own, under a program that ignores SIGTERM
component = "trap : TERM; setsid sleep 600 & setsid sh -c 'sleep 600 & wait' & wait"
with running(["/bin/sh", "-c", component], {"AIRFLOW_HOME": home, "PATH": "/usr/bin:/bin"}) as started:
    started.wait()
"""


def eventually(home: Path, *, is_running: bool) -> bool:
    deadline = time.monotonic() + 20
    while (len([*processes(str(home))]) >= 4) != is_running or (not is_running and [*processes(str(home))]):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_no_process_is_left(tmp_path: Path, number: signal.Signals) -> None:
    main = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stderr=subprocess.PIPE, text=True)
    try:
        assert eventually(tmp_path, is_running=True)
        environments = [Path(f"/proc/{process}/environ").read_bytes() for process in processes(str(tmp_path))]
        assert all(b"SPT_NOENV=1" in environment for environment in environments)
        main.send_signal(number)
        _, errors = main.communicate(timeout=30)
        assert ("ending Airflow" in errors) == (number != signal.SIGKILL)
        assert eventually(tmp_path, is_running=False)
    finally:
        main.kill()
        main.wait()
