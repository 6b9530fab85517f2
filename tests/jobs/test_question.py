"""The question before a write, on a terminal of its own: an answer counts only after the question was shown."""

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.jobs.support.kafka.real_cluster import eventually

ASKING = """\
import sys, time
from jobs.runtime.confirmation import confirm
print("at work", flush=True)
time.sleep(1)
print("agreed" if confirm("write it?") else "refused", flush=True)
"""


@pytest.mark.parametrize(("before", "answer", "result"), [("y\n", "n\n", "refused"), ("n\n", "y\n", "agreed")])
def test_keys_pressed_before_the_question_are_no_answer(tmp_path: Path, before: str, answer: str, result: str) -> None:
    ours, theirs = pty.openpty()
    output = tmp_path / "output"
    with (
        output.open("wb") as log,
        subprocess.Popen([sys.executable, "-c", ASKING], stdin=theirs, stdout=log, stderr=log) as process,
    ):
        try:
            assert eventually(lambda: "at work" in output.read_text())
            os.write(ours, before.encode())
            assert eventually(lambda: "write it?" in output.read_text())
            time.sleep(0.3)
            assert process.poll() is None
            os.write(ours, answer.encode())
            process.wait(20)
        finally:
            process.kill()
            os.close(ours)
            os.close(theirs)
    assert result in output.read_text()
