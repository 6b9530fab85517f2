"""The systemd unit and the Kubernetes manifest in conf/: the command accepts their lines, and the probes exist."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from jobs.cli import app
from jobs.runtime.metrics_server import HEALTH_PATH

CONF = Path(__file__).parents[3] / "conf"
UNIT = CONF / "surveyor-control.service"
CONTAINER = yaml.safe_load((CONF / "surveyor-control.yaml").read_text())["spec"]["template"]["spec"]["containers"][0]


def unit_command() -> list[str]:
    (line,) = [line for line in UNIT.read_text().splitlines() if line.startswith("ExecStart=")]
    return shlex.split(line.removeprefix("ExecStart="))


@pytest.mark.unit
@pytest.mark.parametrize("command", [unit_command(), CONTAINER["command"]], ids=["systemd", "Kubernetes"])
def test_the_command_line_is_accepted(command: list[str]) -> None:
    assert Path(command[0]).name == "surveyor"
    assert {"--apply", "--yes", "--standby", "--metrics", "--listen", "--advertise"} <= {*command}
    assert CliRunner().invoke(app, [*command[1:], "--help"]).exit_code == 0


@pytest.mark.unit
def test_probes_ask_for_the_health_of_the_process() -> None:
    port = CONTAINER["ports"][0]
    assert CONTAINER["command"][-1].endswith(f":{port['containerPort']}")
    for probe in ("startupProbe", "livenessProbe"):
        assert CONTAINER[probe]["httpGet"] == {"path": HEALTH_PATH, "port": port["name"]}


ANALYZE = shutil.which("systemd-analyze")


@pytest.mark.skipif(ANALYZE is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace(unit_command()[0], "/bin/true").replace("User=surveyor", "User=root"))
    done = subprocess.run([str(ANALYZE), "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if UNIT.name in line]) == (0, [])
