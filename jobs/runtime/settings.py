"""Settings of a command, in order of precedence: command line, environment, `surveyor.toml`, defaults.

If --conf or --cluster is typed, the file's values of that cluster count as typed. If file and environment differ, a
line on stderr shows which value is used, so that no command runs on an unintended cluster.

`conf/surveyor.toml` in the repository is the commented example of every key.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from jobs.adapters.delta.warehouse_paths import absolute, refuse_invalid_cluster_name, refuse_invalid_path
from jobs.adapters.spark.engine_choice import Engine, Place
from jobs.adapters.spark.remote import REMOTE, address
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.core import logs
from jobs.core.addresses import refuse_invalid_servers
from jobs.core.errors import RefusedError, UsageError
from jobs.core.logs import LogFormat, LogLevel
from jobs.core.option_sources import (
    BOOTSTRAP_SERVERS,
    COMMAND_CONFIG,
    CONF,
    VARIABLES,
    WAREHOUSE,
    ZOOKEEPER,
    ZOOKEEPER_CONFIG,
    conf_section,
    option_name,
    option_sources,
)
from jobs.core.text_decoding import read_text_file
from jobs.core.units import parse_period, parse_rate
from jobs.runtime.cli_enums import Output
from jobs.runtime.console import log, warn
from jobs.runtime.pace import DEFAULT, Pace
from jobs.runtime.suggestions import GivenOptions
from jobs.runtime.zookeeper_commands import INSTEAD

if TYPE_CHECKING:
    from jobs.adapters.brokers.listeners import Listener
    from jobs.adapters.clusters.interface import Cluster
    from jobs.adapters.delta.warehouse import Warehouse

CONTROLLER_ID: Final = 2147483647
"""The broker id that Surveyor uses as controller: the largest id, which no broker gets by accident."""

ADDRESS_OPTIONS: Final = {"zookeeper": ZOOKEEPER, "bootstrap_servers": BOOTSTRAP_SERVERS}
"""Options that name the source of a cluster's metadata, by the name of their setting; a cluster has one of them."""

DEFAULT_WAREHOUSE: Final = "warehouse"

_Conf = TypeVar("_Conf", bound=Struct)

NO_THROTTLE: Final = "none"
"""The value of --throttle that removes a throttle."""

AUTO_THROTTLE: Final = "auto"
"""The value of --throttle that follows the load of brokers."""

UNRATED: Final = frozenset({None, NO_THROTTLE, AUTO_THROTTLE})
"""Values of --throttle that are no rate."""


def _check_patterns(key: str, patterns: Iterable[str]) -> None:
    """Raise ValueError for a pattern that is not a regex."""
    for text in patterns:
        try:
            re.compile(text)
        except re.error as error:
            raise ValueError(f"{key} has {text!r}, which is not a regex: {error}") from None


class LimitsConf(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits that a commit refuses to exceed."""

    max_changes: Annotated[int, Meta(ge=0)] = 100_000
    max_plan_age_hours: Annotated[float, Meta(gt=0)] = 24.0
    max_hold_seconds: Annotated[float, Meta(gt=0)] = 30.0


class CapacityConf(Struct, frozen=True, forbid_unknown_fields=True, rename={"in_": "in"}):
    """The network of each broker, the replicas that it may have, and the share of its capacities that plans may use."""

    in_: str | None = None
    out: str | None = None
    replicas: Annotated[int, Meta(gt=0)] | None = None
    limit_share: Annotated[float, Meta(gt=0, le=1)] | None = None

    def __post_init__(self) -> None:
        try:
            _ = self.rates
        except UsageError as error:
            raise ValueError(str(error)) from None

    @property
    def rates(self) -> dict[str, int]:
        """Bytes per second, replication included, by resource; only resources that the file states."""
        stated = {"in": self.in_, "out": self.out}
        return {resource: parse_rate(resource, rate) for resource, rate in stated.items() if rate is not None}

    @property
    def amounts(self) -> dict[str, int]:
        """The capacities by resource, in its unit; only resources that the file states."""
        return self.rates | ({} if self.replicas is None else {"replicas": self.replicas})


class LeadersConf(Struct, frozen=True, forbid_unknown_fields=True):
    """Brokers that should lead partitions, by the rules of plans by load.

    `min`: the partitions of a topic that each broker leads at least. `even`: names and regexes of topics of which each
    broker leads as many partitions, give or take one. `racks`: racks whose brokers lead where they have a replica.
    """

    min: dict[str, Annotated[int, Meta(gt=0)]] = {}
    even: tuple[str, ...] = ()
    racks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_patterns("even", self.even)


class ClusterConf(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One cluster in the file."""

    zookeeper: str | None = None
    bootstrap_servers: str | None = None
    zookeeper_config: Path | None = None
    command_config: Path | None = None
    control_listener: str | None = None
    internal_topics: tuple[str, ...] = ()
    """Names and regexes of topics that count as internal, in addition to those of `schemas.internal_topics`."""
    imbalance_threshold: Annotated[float, Meta(ge=0, le=1)] = 0.1
    controller_id: Annotated[int, Meta(ge=0, le=CONTROLLER_ID)] = CONTROLLER_ID
    retention: str = "30d"
    commit_lease: bool = True
    throttle: str | None = None
    limits: LimitsConf = LimitsConf()
    capacity: CapacityConf = CapacityConf()
    leaders: LeadersConf = LeadersConf()

    def __post_init__(self) -> None:
        try:
            parse_period("retention", self.retention)
            if self.throttle not in UNRATED:
                parse_rate("throttle", str(self.throttle))
        except UsageError as error:
            raise ValueError(str(error)) from None
        _check_patterns("internal_topics", self.internal_topics)


class InvalidClusterConf(ClusterConf, frozen=True):
    """A section of the file that cannot be used, with the default of every key."""

    reason: str


class Conf(Struct, frozen=True, forbid_unknown_fields=True):
    """The configuration file."""

    warehouse: str | None = None
    engine: Engine | None = None
    log_level: LogLevel | None = None
    log_format: LogFormat | None = None
    clusters: dict[str, ClusterConf] = {}
    """The sections by cluster; those that cannot be used are InvalidClusterConf."""


@dataclass(frozen=True)  # no slots, as cached_property needs a __dict__
class Settings:
    """The settings that every command gets."""

    cluster: str
    warehouse_uri: str
    conf: ClusterConf
    as_json: bool = False
    result_file: Path | None = None
    fleet: tuple["Settings", ...] = ()
    """Settings of every cluster with --all-clusters; their results are objects, which the summary is made of."""
    remote: str | None = None
    """URL of the Spark Connect server, None for an engine or a Spark of this process."""
    engine: Engine = Engine.AUTO
    output: Output | None = None
    """Format of the output, None for tables with the most important columns."""
    given_options: GivenOptions = field(default_factory=dict)
    """Options typed on the command line, which suggested commands repeat."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Sources of the values of options, for messages (`jobs.core.option_sources`)."""
    conf_section: str | None = None
    """The only section of the file with the cluster's address, with --all-clusters."""
    pace: Pace = DEFAULT

    @property
    def for_people(self) -> bool:
        """Whether stdout gets tables and lines instead of an object."""
        return not self.as_json and self.output is not Output.YAML

    @property
    def throttle(self) -> int | None:
        """Rate of replica copies in bytes per second, from --throttle or the file; None without a fixed rate."""
        text = self._throttle
        return None if text in UNRATED else parse_rate("--throttle", str(text))

    @property
    def is_throttled_by_load(self) -> bool:
        """Whether --throttle, or the file, is `auto`."""
        return self._throttle == AUTO_THROTTLE

    @property
    def _throttle(self) -> str | None:
        given = self.given_options.get("throttle")
        return given[-1] if given else self.conf.throttle

    @property
    def place(self) -> Place:
        """Where DataFrames are computed."""
        return Place(self.engine, self.remote, self.warehouse_uri)

    @property
    def warehouse(self) -> "Warehouse":
        from jobs.adapters.delta.warehouse import Warehouse  # noqa: PLC0415 - a second of Arrow, which --help does not need

        return Warehouse(self.warehouse_uri, self.cluster)

    @cached_property
    def listener(self) -> "Listener":
        """The listener for control requests to brokers, read once; raise UsageError for an invalid file."""
        from jobs.adapters.brokers.listeners import Listener  # noqa: PLC0415 - kafka-python, which --help does not need

        return Listener.of(self.conf.command_config, self.conf.control_listener)

    def connect(self, timeout_seconds: float | None = None) -> "Cluster":
        """Return the cluster, for a `with` block, in which it has one ZooKeeper session; UsageError without an address.

        `timeout_seconds` is how long to wait for ZooKeeper, None for its session timeout.
        """
        if self.conf.bootstrap_servers is not None:
            from jobs.adapters.clusters.kraft import KRaftCluster  # noqa: PLC0415 - kafka-python and Arrow

            return KRaftCluster(self.conf.bootstrap_servers, self.warehouse, self.conf.command_config)
        from jobs.adapters.clusters.zookeeper import ZooKeeperCluster  # noqa: PLC0415 - kazoo and Arrow
        from jobs.adapters.zookeeper.connection import SESSION_TIMEOUT  # noqa: PLC0415 - kazoo

        return ZooKeeperCluster(self.zookeeper_endpoint, timeout_seconds or SESSION_TIMEOUT)

    @property
    def address_option(self) -> str:
        """Source of the cluster's address, for messages."""
        return option_name(ZOOKEEPER if self.conf.bootstrap_servers is None else BOOTSTRAP_SERVERS)

    @property
    def address(self) -> str:
        """The address of the cluster, for messages; raise UsageError if none is given."""
        return self.conf.bootstrap_servers or str(self.zookeeper_endpoint)

    @property
    def has_address(self) -> bool:
        """Whether the cluster's address is given, by an option, the environment or the file."""
        return self.conf.zookeeper is not None or self.conf.bootstrap_servers is not None

    @property
    def has_zookeeper(self) -> bool:
        """Whether the cluster is not one that is read from its brokers."""
        return self.conf.bootstrap_servers is None

    def refuse_invalid_section(self) -> None:
        """Raise UsageError for a cluster whose section of the file cannot be used."""
        if isinstance(self.conf, InvalidClusterConf):
            raise UsageError(self.conf.reason)

    def refuse_without_zookeeper(self, command: str, instead: str | None = None) -> None:
        """Raise RefusedError, with what to use instead, if a command works through ZooKeeper and there is none."""
        if not self.has_zookeeper:
            raise RefusedError(
                f"cluster {self.cluster!r} is a KRaft cluster ({self.address_option}), and `surveyor {command}` works "
                f"through ZooKeeper: {instead or INSTEAD[command]}"
            )

    @property
    def zookeeper_endpoint(self) -> ZooKeeperEndpoint:
        """The cluster's ZooKeeper, for commands that need it.

        Raise RefusedError for a cluster that is read from its brokers, and UsageError if no address is given.
        """
        if not self.has_zookeeper:
            raise RefusedError(
                f"cluster {self.cluster!r} is a KRaft cluster ({self.address_option}), and this command needs "
                "ZooKeeper; docs/kraft.md explains what works there and how"
            )
        if self.conf.zookeeper is None and self.conf_section is not None:
            raise UsageError(
                f"no address given for cluster {self.cluster!r}: set zookeeper, or bootstrap_servers of a KRaft "
                f"cluster, in {self.conf_section}"
            )
        if self.conf.zookeeper is None:
            raise UsageError(
                f"no ZooKeeper given for cluster {self.cluster!r}: give --zookeeper HOST:PORT[,...][/chroot], or set "
                f"SURVEYOR_ZOOKEEPER, or zookeeper = ... in {conf_section(self.cluster)}; of a KRaft cluster, "
                "--bootstrap-server HOST:PORT[,...]",
            )
        return ZooKeeperEndpoint(self.conf.zookeeper, self.conf.zookeeper_config)


def load_conf(path: Path | None, name: str = "") -> Conf:
    """Read the TOML file; raise UsageError with the first error that concerns all of it.

    `name` is the file's name in messages: the option or variable, and the path. An error in the section of a cluster
    concerns only that cluster.
    """
    if path is None:
        return Conf()
    called = name or str(path)
    try:
        content = tomllib.loads(read_text_file(path, called))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{called} is not valid TOML: {error}") from None
    sections = content.pop("clusters", {})
    conf = _converted(content, Conf, called)
    if not isinstance(sections, dict):
        raise UsageError(_key_message(called, "clusters: expected sections [clusters.NAME]"))
    return replace(conf, clusters={name: _section_of(path, name, section) for name, section in sections.items()})


def _section_of(path: Path, cluster: str, content: object) -> ClusterConf:
    where = _section(path, cluster)
    try:
        conf = _converted(content, ClusterConf, where)
        _refuse_invalid_section(cluster, conf, where)
    except UsageError as error:
        return InvalidClusterConf(reason=str(error))
    return conf


def _converted(content: object, kind: type[_Conf], place: str) -> _Conf:
    try:
        return msgspec.convert(content, kind, dec_hook=_path)
    except msgspec.ValidationError as error:
        raise UsageError(_key_message(place, _with_key(str(error)))) from None


def _path(_: type[Path], value: object) -> Path:
    if not isinstance(value, str):
        raise TypeError(f"Expected `str`, got {value!r}")  # the text of msgspec's own errors
    return Path(value)


_UNKNOWN: Final = re.compile("Object contains unknown field `(.*)`", re.DOTALL)


def _with_key(fault: str) -> str:
    """Begin a message of msgspec with the key that it is about.

    >>> _with_key("Expected `float` <= 1.0 - at `$.imbalance_threshold`")
    'imbalance_threshold: expected `float` <= 1.0'
    >>> _with_key("Object contains unknown field `max_moves` - at `$.limits`")
    'limits.max_moves: there is no such key'
    >>> _with_key("Expected `object`, got `str`")
    'expected `object`, got `str`'
    """
    reason, _, path = fault.partition(" - at `$")
    keys = [key for key in path.removesuffix("`").split(".") if key]
    if unknown := _UNKNOWN.fullmatch(reason):
        return f"{'.'.join([*keys, unknown[1]])}: there is no such key"
    reason = reason.replace("Expected", "expected", 1)
    return f"{'.'.join(keys)}: {reason}" if keys else reason


def _key_message(place: str, fault: str) -> str:
    return f"{place}: {fault}; see conf/surveyor.toml for every key"


def settings_from(
    *,
    cluster: str,
    zookeeper: str | None,
    bootstrap_servers: str | None = None,
    warehouse: str | None,
    conf_path: Path | None,
    command_config: Path | None,
    zookeeper_config: Path | None = None,
    as_json: bool,
    result_file: Path | None,
    remote: str | None = None,
    engine: Engine | None = None,
    fleet: bool = False,
    output: Output | None = None,
    log_level: LogLevel | None = None,
    log_format: LogFormat | None = None,
    given_options: GivenOptions | None = None,
    pace: Pace = DEFAULT,
) -> Settings:
    """Merge options and file, and log as they specify; for a `fleet`, the clusters come only from the file."""
    sources = Sources(given_options or {}, conf_path)
    conf = load_conf(conf_path, sources.conf_file)
    logs.configure(
        sources.prefer("log_level", log_level, conf.log_level, notify=lambda _: None),
        sources.prefer("log_format", log_format, conf.log_format, notify=lambda _: None),
    )
    folder, places = _warehouse_folder(sources, warehouse, conf)
    if remote is not None:
        address(remote, "--remote" if "remote" in sources.given_options else REMOTE)
        folder = absolute(folder)
    refuse_invalid_cluster_name(cluster)
    addresses = {"zookeeper": zookeeper, "bootstrap_servers": bootstrap_servers}
    for name, servers in addresses.items():
        option = ADDRESS_OPTIONS[name]
        _refuse_invalid_servers(name, servers, option if name in sources.given_options else VARIABLES[option])
    of_command = partial(
        Settings,
        warehouse_uri=folder,
        as_json=as_json or output is Output.JSON,
        remote=remote,
        engine=sources.prefer("engine", engine, conf.engine, notify=lambda _: None) or Engine.AUTO,
        output=output,
        pace=pace,
    )
    if fleet:
        members = _fleet_members(sources, conf, addresses, places, of_command)
        section, cluster_conf = f"its section of {conf_path}", ClusterConf()
        places |= _places_in(section)
    else:
        members = ()
        configs = {"zookeeper_config": zookeeper_config, "command_config": command_config}
        stored = _conf_of(cluster, conf.clusters, sources.conf_file)
        cluster_conf = _merged_conf(sources, stored, addresses, configs)
        places |= _places_of(sources, cluster_conf, stored, _section(conf_path, cluster))
    return of_command(
        cluster=cluster,
        conf=cluster_conf,
        result_file=result_file,
        fleet=members,
        given_options=sources.given_options,
        places=places,
    )


def _warehouse_folder(sources: "Sources", warehouse: str | None, conf: Conf) -> tuple[str, dict[str, str]]:
    """Return the folder of the warehouse, and its place for messages; raise UsageError if it cannot be a warehouse."""
    if warehouse == "":
        raise UsageError("--warehouse names no folder: give the name of one, or leave the option out")
    folder = sources.prefer("warehouse", warehouse, conf.warehouse)
    places = sources.places({"warehouse": folder}, {"warehouse": conf.warehouse}, str(sources.conf_path))
    folder = folder or DEFAULT_WAREHOUSE
    with option_sources(places):
        refuse_invalid_path(folder)
    return folder, places


def _fleet_members(
    sources: "Sources",
    conf: Conf,
    addresses: Mapping[str, str | None],
    places: Mapping[str, str],
    of_command: Callable[..., Settings],
) -> tuple[Settings, ...]:
    """Return the settings of each cluster of the file; raise UsageError if there is none, or for one cluster's option.

    Addresses of the environment are not used, and a line says so.
    """
    _refuse_single_cluster_options(sources.given_options)
    if not conf.clusters:
        raise UsageError(
            f"--all-clusters takes the clusters of {sources.conf_file}; give one with [clusters.NAME] sections"
        )
    for name, servers in addresses.items():
        if servers is not None:
            variable = VARIABLES[ADDRESS_OPTIONS[name]]
            log(f"surveyor: --all-clusters takes the clusters of {sources.conf_path}, not {servers} of {variable}")
    sections = {name: _section(sources.conf_path, name) for name in conf.clusters}
    return tuple(
        of_command(
            cluster=name,
            conf=known,
            as_json=True,
            given_options=_given_options_for(name, sources.given_options),
            places={**places, **_places_in(sections[name]), CONF: sections[name]},
            conf_section=sections[name],
        )
        for name, known in sorted(conf.clusters.items())
    )


def _merged_conf(
    sources: "Sources", stored: ClusterConf, addresses: Mapping[str, str | None], configs: Mapping[str, Path | None]
) -> ClusterConf:
    """Return the section of a cluster with the values of options and environment that are preferred to it."""
    chosen = {
        **sources.address(addresses, stored),
        **{name: sources.prefer(name, value, getattr(stored, name)) for name, value in configs.items()},
    }
    given = {name: value for name, value in chosen.items() if value is not None}
    return replace(stored, **(dict.fromkeys(ADDRESS_OPTIONS) | given))


def _places_of(sources: "Sources", merged: ClusterConf, stored: ClusterConf, section: str) -> dict[str, str]:
    """Return where the options of a cluster come from, for messages."""
    chosen, in_file = ({name: getattr(conf, name) for name in _CLUSTER_OPTIONS} for conf in (merged, stored))
    places = sources.places(chosen, in_file, section)
    return places if sources.conf_path is None else places | {CONF: section}


def _conf_of(cluster: str, sections: Mapping[str, ClusterConf], conf_file: str) -> ClusterConf:
    """Return the section of a cluster, and warn of others that cannot be used.

    Raise UsageError if its own cannot be used, or if the file has sections, and none of this cluster.
    """
    if sections and cluster not in sections:
        raise UsageError(f"{conf_file} has no [clusters.{cluster}]; it has {', '.join(sorted(sections))}")
    for name, conf in sorted(sections.items()):
        if isinstance(conf, InvalidClusterConf):
            if name == cluster:
                raise UsageError(conf.reason)
            warn(f"{conf.reason}; commands for cluster {name!r} are refused until this is corrected")
    return sections.get(cluster, ClusterConf())


_CLUSTER_OPTIONS: Final = ADDRESS_OPTIONS | {"zookeeper_config": ZOOKEEPER_CONFIG, "command_config": COMMAND_CONFIG}
"""Options that are also keys of a cluster's section, by key."""


def _refuse_invalid_servers(name: str, servers: str | None, place: str) -> None:
    form, config = _ADDRESS_FORMS[name]
    refuse_invalid_servers(place, servers or "", form, config)


_ADDRESS_FORMS: Final = {
    "zookeeper": ("HOST:PORT[,...][/chroot]", ZOOKEEPER_CONFIG),
    "bootstrap_servers": ("HOST:PORT[,...] of brokers", COMMAND_CONFIG),
}
"""How addresses are written, and the option that gives the user, by key."""


def _refuse_invalid_section(cluster: str, conf: ClusterConf, section: str) -> None:
    """Raise UsageError for a section with an invalid name or address, or with both ZooKeeper and brokers."""
    refuse_invalid_cluster_name(cluster)
    for name in ADDRESS_OPTIONS:
        _refuse_invalid_servers(name, getattr(conf, name), f"{name} in {section}")
    if None not in {conf.zookeeper, conf.bootstrap_servers}:
        raise UsageError(f"{section} has both zookeeper and bootstrap_servers; give one of the two")


def _section(conf_path: Path | None, cluster: str) -> str:
    """Name the section of a cluster in the file, for messages."""
    return f"[clusters.{cluster}] of {conf_path}"


def _places_in(section: str) -> dict[str, str]:
    """Return the places of a cluster's options for messages, if only the file has them."""
    return {option: f"{name} in {section}" for name, option in _CLUSTER_OPTIONS.items()}


SINGLE_CLUSTER_OPTIONS: Final = (
    *("cluster", "zookeeper", "bootstrap_servers", "zookeeper_config", "command_config"),
    *("snapshot", "as_of", "to_snapshot", "plan"),
    *("brokers", "broker_list", "add_brokers", "remove_brokers", "onto", "replace", "replica_assignment"),
    *("restart", "restart_order", "partition", "migration", "rolled_back", "watch", "apply", "yes", "max_wait"),
    *("pareto", "load", "weeks", "add", "remove", "growth", "days"),
    *("path_to_json_file", "reassignment_json_file", "topics_to_move_json_file", "topics_json_file", "sizes"),
)
"""Options that concern one cluster: its name and connections, snapshots, brokers, partitions, and what writes to it."""

FLEET_OPTIONS: Final = frozenset({"fleet", "parallel"})
"""Options for working on several clusters."""


def _refuse_single_cluster_options(given_options: GivenOptions) -> None:
    for name in SINGLE_CLUSTER_OPTIONS:
        if name in given_options:
            raise UsageError(
                f"{given_options[name][0]} is for one cluster, --all-clusters for every cluster: give one of the two"
            )


def _given_options_for(cluster: str, given_options: GivenOptions) -> GivenOptions:
    """Return the options with which the same command line would concern only one cluster of the fleet."""
    rest = {name: words for name, words in given_options.items() if name not in FLEET_OPTIONS}
    return {"cluster": ("--cluster", cluster), **rest}


_Value = TypeVar("_Value", str, Path, LogLevel, LogFormat, Engine)


@dataclass(frozen=True, slots=True)
class Sources:
    """The typed options and the configuration file, between which values are chosen."""

    given_options: GivenOptions
    conf_path: Path | None

    @property
    def conf_file(self) -> str:
        """The configuration file and the source of its path, for messages; by default the option."""
        if self.conf_path is None:
            return f"{CONF} ({VARIABLES[CONF]})"
        return f"{CONF if 'conf_path' in self.given_options else VARIABLES[CONF]} {self.conf_path}"

    def address(self, given: Mapping[str, str | None], in_file: ClusterConf) -> dict[str, str]:
        """Choose the address of the cluster's metadata: of ZooKeeper, or of the brokers of a KRaft cluster.

        `given` are the options and their environment variables. An option on the command line excludes the other one.
        """
        options = {name: value for name, value in given.items() if value is not None}
        given_here = {name: value for name, value in options.items() if name in self.given_options}
        chosen = given_here or options
        if len(chosen) > 1:
            both = [ADDRESS_OPTIONS[name] if given_here else f"SURVEYOR_{name.upper()}" for name in chosen]
            raise UsageError(f"{' and '.join(both)} name two places of one cluster's metadata: give one of the two")
        stored = {name: value for name in ADDRESS_OPTIONS if (value := getattr(in_file, name)) is not None}
        if given_here or not stored:
            return chosen
        (name, value), other = next(iter(stored.items())), next(iter(chosen), None)
        if other in {None, name}:
            return {name: str(self.prefer(name, chosen.get(name), value))}
        of_file, of_environment = f"{name} {value} of {self.conf_path}", f"{chosen[other]} of SURVEYOR_{other.upper()}"
        file_is_meant = bool({"conf_path", "cluster"} & self.given_options.keys())
        used, unused = (of_file, of_environment) if file_is_meant else (of_environment, of_file)
        log(f"surveyor: {used} is used, not {unused}")
        return stored if file_is_meant else chosen

    def places(self, chosen: Mapping[str, object], stored: Mapping[str, object], section: str) -> dict[str, str]:
        """Return where the chosen values come from, by option; `stored` are those in the section of the file."""
        places = dict[str, str]()
        for name, value in chosen.items():
            option = WAREHOUSE if name == "warehouse" else _CLUSTER_OPTIONS[name]
            if name in self.given_options:
                places[option] = option
            elif value is not None and value == stored[name]:
                places[option] = f"{name} in {section}"
            elif value is not None:
                places[option] = VARIABLES.get(option, option)
        return places

    def prefer(
        self, name: str, value: _Value | None, in_file: _Value | None, notify: Callable[[str], None] = log
    ) -> _Value | None:
        """Choose between `value`, from an option or its environment variable, and the file's value.

        `notify` is called with a message if the two differ and the option was not typed.
        """
        if value is None or in_file is None or value == in_file or name in self.given_options:
            return in_file if value is None else value
        options = ("conf_path", "cluster") if name in ClusterConf.__struct_fields__ else ("conf_path",)
        file_is_meant = any(option in self.given_options for option in options)
        of_file, of_environment = f"{name} {in_file} of {self.conf_path}", f"{value} of SURVEYOR_{name.upper()}"
        used, other = (of_file, of_environment) if file_is_meant else (of_environment, of_file)
        notify(f"surveyor: {used} is used, not {other}")
        return in_file if file_is_meant else value
