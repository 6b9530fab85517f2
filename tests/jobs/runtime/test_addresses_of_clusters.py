"""A cluster has one address, of ZooKeeper or of KRaft brokers; what is typed excludes the other."""

from pathlib import Path

import pytest

from jobs.adapters.clusters.interface import Cluster
from jobs.adapters.clusters.kraft import KRaftCluster
from jobs.adapters.clusters.zookeeper import ZooKeeperCluster
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.errors import ExitCode, RefusedError, UsageError
from jobs.core.option_sources import option_sources
from jobs.runtime.console import CommandResult
from jobs.runtime.fleet import FleetSummary, run_on_fleet
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import GivenOptions
from tests.jobs.support.commands.settings import settings_of

ZOOKEEPER: GivenOptions = {"zookeeper": ("--zookeeper", "zk:1")}
KRAFT = KRaftCluster("k:1", Warehouse("w", "default"))
BROKERS: GivenOptions = {"bootstrap_servers": ("--bootstrap-server", "k:1")}


def _settings(
    zookeeper: str | None = None,
    bootstrap_servers: str | None = None,
    conf: Path | None = None,
    given_options: GivenOptions | None = None,
) -> Settings:
    return settings_of("w", zookeeper, bootstrap_servers=bootstrap_servers, conf_path=conf, given_options=given_options)


def _source(settings: Settings) -> Cluster:
    with settings.connect() as source:
        return source


def _conf(folder: Path, *lines: str) -> Path:
    path = folder / "surveyor.toml"
    path.write_text("\n".join(["[clusters.default]", *lines]), encoding="utf-8")
    return path


def test_each_address_has_its_source() -> None:
    assert isinstance(_source(_settings(zookeeper="zk:1")), ZooKeeperCluster)
    assert _source(_settings(bootstrap_servers="k:1")) == KRAFT


@pytest.mark.parametrize(
    "address",
    [
        "me:s3cret@zk:2181",
        "zk1:2181,me:s3cret@zk2:2181",
        "zk://me:s3cret@zk:2181",
        "sasl://me:s3/cret@kafka1:9092",
        "zk://zk:2181",
    ],
)
def test_an_address_with_a_user_or_a_protocol_is_refused(tmp_path: Path, address: str) -> None:
    conf = _conf(tmp_path, f'zookeeper = "{address}"')
    places = {
        "SURVEYOR_ZOOKEEPER": (address, None, None, None),
        "--zookeeper": (address, None, None, ZOOKEEPER),
        "SURVEYOR_BOOTSTRAP_SERVERS": (None, address, None, None),
        "--bootstrap-server": (None, address, None, BROKERS),
        f"zookeeper in [clusters.default] of {conf}": ("zk:1", None, conf, None),
    }
    for place, given in places.items():
        with pytest.raises(UsageError) as refused:
            _settings(*given)
        shown = ": the address contains @" if "@" in address else " is 'zk://zk:2181'; expected HOST:PORT[,...]"
        assert str(refused.value).startswith(place + shown)
        assert "cret" not in str(refused.value)


def test_a_chroot_may_have_any_characters() -> None:
    assert _settings("zk1:2181,[::1]:2181/kafka@east").address == "zk1:2181,[::1]:2181/kafka@east"


def test_a_typed_address_excludes_that_of_the_environment() -> None:
    assert isinstance(_source(_settings("zk:1", "k:1", given_options=ZOOKEEPER)), ZooKeeperCluster)
    assert isinstance(_source(_settings("zk:1", "k:1", given_options=BROKERS)), KRaftCluster)


def test_two_addresses_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="SURVEYOR_ZOOKEEPER and SURVEYOR_BOOTSTRAP_SERVERS"):
        _settings("zk:1", "k:1")
    with pytest.raises(UsageError, match="--zookeeper and --bootstrap-server"):
        _settings("zk:1", "k:1", given_options={**ZOOKEEPER, **BROKERS})
    with pytest.raises(UsageError, match="both zookeeper and bootstrap_servers"):
        _settings(conf=_conf(tmp_path, 'zookeeper = "zk:1"', 'bootstrap_servers = "k:1"'))


def test_the_file_is_used_if_it_is_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = _conf(tmp_path, 'bootstrap_servers = "k:1"')
    assert _source(_settings(conf=conf)) == KRAFT
    assert isinstance(_source(_settings("zk:1", conf=conf)), ZooKeeperCluster)
    assert _source(_settings("zk:1", conf=conf, given_options={"conf_path": ("--conf", str(conf))})) == KRAFT
    assert "bootstrap_servers k:1" in capsys.readouterr().err


def test_a_typed_address_excludes_that_of_the_file(tmp_path: Path) -> None:
    conf = _conf(tmp_path, 'bootstrap_servers = "k:1"')
    assert isinstance(_source(_settings("zk:1", conf=conf, given_options=ZOOKEEPER)), ZooKeeperCluster)


def test_a_command_that_needs_zookeeper_refuses_a_kraft_cluster() -> None:
    with pytest.raises(RefusedError, match="is a KRaft cluster"):
        _ = _settings(bootstrap_servers="k:1").zookeeper_endpoint


@pytest.mark.parametrize("text", ["", "kafka1", "kafka1:x", ","])
def test_an_address_has_a_port(text: str) -> None:
    with pytest.raises(UsageError, match="expected HOST:PORT"):
        _source(_settings(bootstrap_servers=text)).read_brokers()


def _fleet(conf: Path) -> Settings:
    return settings_of(
        None,
        conf_path=conf,
        fleet=True,
        given_options={"conf_path": ("--conf", str(conf)), "fleet": ("--all-clusters",)},
    )


def test_two_addresses_of_a_cluster_fail_it_alone(tmp_path: Path) -> None:
    conf = _conf(tmp_path, 'zookeeper = "zk:1"', 'bootstrap_servers = "k:1"', "[clusters.other]", 'zookeeper = "zk:2"')
    summary = FleetSummary(title="test", figures=lambda result: result, shown=())

    result = run_on_fleet(_fleet(conf), None, lambda settings: CommandResult({"read": settings.address}), summary)

    assert result.json["clusters"]["other"] == {"read": "zk:2"}
    failed = result.json["clusters"]["default"]
    assert (
        failed["error"] == f"[clusters.default] of {conf} has both zookeeper and bootstrap_servers; give one of the two"
    )
    assert (failed["exit_code"], result.exit_code) == (ExitCode.USAGE, ExitCode.USAGE)


def test_a_fleet_names_keys_of_the_file(tmp_path: Path) -> None:
    conf = _conf(tmp_path, "retention = '30d'")
    (member,) = _fleet(conf).fleet

    assert member.places["--command-config"] == f"command_config in [clusters.default] of {conf}"
    with pytest.raises(UsageError, match=r"set zookeeper, or bootstrap_servers .* in \[clusters\.default\] of "):
        _ = member.address


@pytest.mark.parametrize(
    ("given", "in_file", "given_options", "place"),
    [
        ("zk:1", None, ZOOKEEPER, "--zookeeper"),
        ("zk:1", None, {}, "SURVEYOR_ZOOKEEPER"),
        ("zk:1", "zk:2", {}, "SURVEYOR_ZOOKEEPER"),
        ("zk:1", "zk:2", {"cluster": ("--cluster", "default")}, "zookeeper in [clusters.default] of {conf}"),
        (None, "zk:2", {}, "zookeeper in [clusters.default] of {conf}"),
    ],
)
def test_messages_name_the_place_of_a_value(
    tmp_path: Path, given: str | None, in_file: str | None, given_options: GivenOptions, place: str
) -> None:
    conf = _conf(tmp_path, *([f'zookeeper = "{in_file}"'] if in_file else []))

    settings = _settings(given, conf=conf, given_options=given_options)

    with option_sources(settings.places):
        assert settings.address_option == place.format(conf=conf)
    assert settings.places["--warehouse"] == "SURVEYOR_WAREHOUSE"
    assert settings.address_option == "--zookeeper (SURVEYOR_ZOOKEEPER)"
