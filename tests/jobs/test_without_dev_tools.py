"""What users install is enough: no command needs a tool of the developers'."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
IMPORTED_AS = {
    "googleapis-common-protos": "google.rpc",
    "grpcio": "grpc",
    "grpcio-status": "grpc_status",
    "import-linter": "importlinter",
    "pytest-randomly": "pytest_randomly",
    "pytest-xdist": "xdist",
    "venv-pack": "venv_pack",
}
TOOLS = [re.split(r"[<>=]", tool)[0] for tool in (*PROJECT["dependency-groups"]["dev"], "gssapi")]

WITHOUT = """\
import sys
sys.modules.update(dict.fromkeys({missing!r}))
from jobs.entry import main
sys.argv = ["surveyor", *{arguments!r}]
main()
"""


def run(folder: Path, missing: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder of its own, with these modules missing."""
    program = WITHOUT.format(missing=missing, arguments=arguments)
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.parametrize("arguments", [("--help",), ("demo", "--help"), ("plan", "reconcile", "--help")])
def test_commands_are_there_without_any_tool(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run(tmp_path, [IMPORTED_AS.get(tool, tool) for tool in TOOLS], *arguments)
    assert (done.returncode, "Usage:" in done.stdout) == (0, True), done.stderr
