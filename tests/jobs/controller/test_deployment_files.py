"""The systemd units and the Kubernetes manifest in conf/: the command accepts their lines, and the probes exist."""

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
UNIT, SAMPLE = (CONF / f"surveyor-{name}.service" for name in ("control", "load-sample"))
TIMER = SAMPLE.with_suffix(".timer")
CONTAINER = yaml.safe_load((CONF / "surveyor-control.yaml").read_text())["spec"]["template"]["spec"]["containers"][0]


def unit_command(unit: Path = UNIT) -> list[str]:
    (line,) = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
    return shlex.split(line.removeprefix("ExecStart="))


@pytest.mark.unit
@pytest.mark.parametrize("command", [unit_command(), CONTAINER["command"]], ids=["systemd", "Kubernetes"])
def test_the_command_line_is_accepted(command: list[str]) -> None:
    assert Path(command[0]).name == "surveyor"
    assert {"--apply", "--yes", "--standby", "--metrics", "--listen", "--advertise"} <= {*command}
    assert CliRunner().invoke(app, [*command[1:], "--help"]).exit_code == 0


@pytest.mark.unit
def test_the_timer_starts_a_sample() -> None:
    surveyor, *words = unit_command(SAMPLE)
    assert (Path(surveyor).name, words) == ("surveyor", ["load", "sample"])
    assert CliRunner().invoke(app, [*words, "--help"]).exit_code == 0
    assert TIMER.name in SAMPLE.read_text()


@pytest.mark.unit
def test_probes_ask_for_the_health_of_the_process() -> None:
    port = CONTAINER["ports"][0]
    assert CONTAINER["command"][-1].endswith(f":{port['containerPort']}")
    for probe in ("startupProbe", "livenessProbe"):
        assert CONTAINER[probe]["httpGet"] == {"path": HEALTH_PATH, "port": port["name"]}


ANALYZE = shutil.which("systemd-analyze")


@pytest.mark.skipif(ANALYZE is None, reason="systemd is not installed")
@pytest.mark.parametrize("units", [[UNIT], [SAMPLE, TIMER]], ids=lambda units: units[0].stem)
def test_systemd_accepts_the_unit(tmp_path: Path, units: list[Path]) -> None:
    for unit in units:
        text = unit.read_text().replace(unit_command(units[0])[0], "/bin/true")
        (tmp_path / unit.name).write_text(text.replace("User=surveyor", "User=root"))
    verified = [tmp_path / unit.name for unit in units]
    done = subprocess.run([str(ANALYZE), "verify", *verified], capture_output=True, text=True, check=False)
    faults = [line for line in done.stderr.splitlines() if any(unit.name in line for unit in units)]
    assert (done.returncode, faults) == (0, [])
