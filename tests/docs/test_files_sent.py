"""The command of docs/deploy.md that sends files to executors runs in the folder of these files."""

import os
import subprocess
from pathlib import Path

from tests.docs.blocks import page_path
from tests.docs.markdown import code_blocks

FILES = ("zookeeper.properties", "surveyor.keytab", "client.properties")

SPARK_SUBMIT = """#!/bin/sh
# print the words that are no file here
for word in $(echo "$@" | tr , ' '); do
    test -f "$word" || printf '%s\\n' "$word"
done
"""


def test_the_command_names_files_that_exist_where_it_runs(tmp_path: Path) -> None:
    page = page_path("deploy.md").read_text(encoding="utf-8")
    block = next(block for block in code_blocks(page) if block.startswith("here="))
    project, configuration, programs = tmp_path / "project", tmp_path / "etc", tmp_path / "bin"
    for path in (
        *(configuration / name for name in FILES),
        *(project / name for name in ("conf/spark-defaults.conf", "dist/kafka_surveyor-0.1.0.zip", "jobs/snapshot.py")),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    programs.mkdir()
    for name, script in (("spark-submit", SPARK_SUBMIT), ("python", f"#!/bin/sh\necho {configuration / FILES[0]}\n")):
        (programs / name).write_text(script, encoding="utf-8")
        (programs / name).chmod(0o755)

    done = subprocess.run(
        ["/bin/sh", "-ec", block.replace("/etc/surveyor", str(configuration))],
        cwd=project,
        env={"PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    options = [word for word in done.stdout.split() if word.startswith("--")]
    assert "--files" in options
    assert [word for word in done.stdout.split() if word not in options] == ["spark://spark1:7077"]
