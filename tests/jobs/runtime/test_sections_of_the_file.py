"""An error in the section of a cluster stops the commands for that cluster alone; other errors of the file stop all."""

from pathlib import Path

import pytest

from jobs.core.errors import ExitCode, UsageError
from jobs.runtime.console import CommandResult
from jobs.runtime.fleet import FleetSummary, run_on_fleet
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import GivenOptions
from tests.jobs.support.commands.settings import settings_of

pytestmark = pytest.mark.unit

INVALID = [
    ("[clusters.east]\nzokeeper = 'zk:1'", "east", ": zokeeper: there is no such key"),
    ("[clusters.east]\nimbalance_threshold = 2", "east", ": imbalance_threshold: expected `float` <= 1.0"),
    ("[clusters.east]\nimbalance_threshold = nan", "east", ": imbalance_threshold: "),
    ("[clusters.east]\ncommand_config = 7", "east", ": command_config: expected `str`, got 7"),
    ("[clusters.east]\ninternal_topics = ['(']", "east", ": internal_topics has '(', which is not a regex"),
    ("[clusters.east]\nthrottle = '50mb'", "east", "bytes a second, as 50000000, 50MB/s"),
    ("[clusters.east]\nretention = 'long'", "east", ": retention 'long'"),
    ("[clusters.east.limits]\nmax_moves = 2", "east", ": limits.max_moves: there is no such key"),
    ("[clusters]\neast = 'zk:1'", "east", ": expected `object`, got `str`"),
    ("[clusters.east]\nzookeeper = 'zk:1'\nbootstrap_servers = 'k:1'", "east", " has both zookeeper and bootstrap"),
    ("[clusters.east]\nzookeeper = 'me:secret@zk:1'", "east", ": the address contains @"),
    ("[clusters.' ']\nzookeeper = 'zk:1'", " ", "cannot be the name of a cluster"),
]
"""A section that cannot be used, its cluster, and a part of the message."""


def _settings(
    conf: Path, cluster: str = "default", *, fleet: bool = False, given_options: GivenOptions | None = None
) -> Settings:
    return settings_of("w", cluster=cluster, conf_path=conf, fleet=fleet, given_options=given_options)


def _conf(folder: Path, text: str) -> Path:
    path = folder / "surveyor.toml"
    path.write_text(f"{text}\n[clusters.west]\nzookeeper = 'zk:2'\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(("text", "cluster", "reason"), INVALID)
def test_an_invalid_section_fails_its_cluster_alone(tmp_path: Path, text: str, cluster: str, reason: str) -> None:
    fleet = _settings(_conf(tmp_path, text), fleet=True)
    summary = FleetSummary(title="test", figures=lambda result: result, shown=())

    result = run_on_fleet(fleet, None, lambda settings: CommandResult({"read": settings.address}), summary)

    failed = result.json["clusters"][cluster]
    assert (result.json["clusters"]["west"], reason in failed["error"]) == ({"read": "zk:2"}, True)
    assert (failed["exit_code"], result.json["failed"], result.exit_code) == (ExitCode.USAGE, 1, ExitCode.USAGE)
    assert "secret" not in failed["error"]


@pytest.mark.parametrize(("text", "cluster", "reason"), INVALID)
def test_a_command_for_another_cluster_warns_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, cluster: str, reason: str
) -> None:
    conf = _conf(tmp_path, text)

    assert _settings(conf, "west").address == "zk:2"
    warning = capsys.readouterr().err
    assert (warning.startswith("surveyor: warning: "), reason in warning) == (True, True)
    with pytest.raises(UsageError, match=r"cannot be the name|\[clusters\.east\] of "):
        _settings(conf, cluster)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("warehouse = ", " is not valid TOML"),
        ("warehouse = 1", ": warehouse: expected `str | null`, got `int`"),
        ("wharehouse = 'w'\n[clusters.east]\nzokeeper = 'zk:1'", ": wharehouse: there is no such key"),
    ],
)
@pytest.mark.parametrize("fleet", [False, True])
def test_an_error_of_the_whole_file_names_it_as_it_was_given(
    tmp_path: Path, text: str, reason: str, *, fleet: bool
) -> None:
    conf = _conf(tmp_path, text)
    options: GivenOptions = {"conf_path": ("--conf", str(conf))}
    for given_options, place in ((options, f"--conf {conf}"), ({}, f"SURVEYOR_CONF {conf}")):
        with pytest.raises(UsageError) as refused:
            _settings(conf, "west", fleet=fleet, given_options=given_options)
        assert str(refused.value).startswith(place + reason)


def test_a_missing_section_names_the_file_as_it_was_given(tmp_path: Path) -> None:
    conf = _conf(tmp_path, "")
    with pytest.raises(UsageError, match=r"SURVEYOR_CONF .* has no \[clusters\.eats\]; it has west"):
        _settings(conf, "eats")
    conf.write_text("")
    with pytest.raises(UsageError, match=r"--all-clusters takes the clusters of SURVEYOR_CONF .*; give one with"):
        _settings(conf, fleet=True)
