"""Sources of the values of options: the command line, an environment variable, or the configuration file.

Messages name that place, because the value has to be corrected there. It is stated once for a command; with several
clusters, each has places of its own in the file.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

WAREHOUSE: Final = "--warehouse"
ZOOKEEPER: Final = "--zookeeper"
BOOTSTRAP_SERVERS: Final = "--bootstrap-server"
ZOOKEEPER_CONFIG: Final = "--zookeeper-config"
COMMAND_CONFIG: Final = "--command-config"
CONF: Final = "--conf"

VARIABLES: Final = {
    WAREHOUSE: "SURVEYOR_WAREHOUSE",
    ZOOKEEPER: "SURVEYOR_ZOOKEEPER",
    BOOTSTRAP_SERVERS: "SURVEYOR_BOOTSTRAP_SERVERS",
    ZOOKEEPER_CONFIG: "SURVEYOR_ZOOKEEPER_CONFIG",
    COMMAND_CONFIG: "SURVEYOR_COMMAND_CONFIG",
    CONF: "SURVEYOR_CONF",
}
"""Environment variables by option."""

_WITH_VARIABLE: Final = frozenset({WAREHOUSE, ZOOKEEPER, BOOTSTRAP_SERVERS})
"""Options whose variable is named, too, if neither is given."""


class _State:
    """The places of this process's command."""

    places: Mapping[str, str] = {}


_of_cluster: Final[ContextVar[Mapping[str, str] | None]] = ContextVar("option_sources", default=None)
"""The places of the cluster of a fleet that this thread works on."""


def _places() -> Mapping[str, str]:
    return _of_cluster.get() or _State.places


def option_name(option: str) -> str:
    """Return the source of an option's value, for messages; by default the option.

    >>> option_name("--warehouse"), option_name("--command-config")
    ('--warehouse (SURVEYOR_WAREHOUSE)', '--command-config')
    >>> with option_sources({"--warehouse": "warehouse of surveyor.toml"}):
    ...     option_name("--warehouse")
    'warehouse of surveyor.toml'
    """
    return _places().get(option) or (f"{option} ({VARIABLES[option]})" if option in _WITH_VARIABLE else option)


def value_at(option: str, value: object) -> str:
    """Return an option's value with the place that it comes from, for messages.

    >>> value_at("--zookeeper-config", "zk.properties")
    '--zookeeper-config zk.properties'
    >>> with option_sources({"--zookeeper-config": "zookeeper_config in [clusters.east] of surveyor.toml"}):
    ...     value_at("--zookeeper-config", "zk.properties")
    'zookeeper_config in [clusters.east] of surveyor.toml: zk.properties'
    """
    place = option_name(option)
    return f"{place} {value}" if place.startswith((option, VARIABLES.get(option, option))) else f"{place}: {value}"


def conf_section(cluster: str = "NAME") -> str:
    """Return the section of the configuration file that has the settings of the cluster, for messages.

    >>> conf_section("east")
    '[clusters.east] of the file of --conf (SURVEYOR_CONF)'
    >>> with option_sources({"--conf": "[clusters.east] of surveyor.toml"}):
    ...     conf_section()
    '[clusters.east] of surveyor.toml'
    """
    return _places().get(CONF) or f"[clusters.{cluster}] of the file of {CONF} ({VARIABLES[CONF]})"


@contextmanager
def option_sources(places: Mapping[str, str]) -> Iterator[None]:
    """State the places for a command."""
    before, _State.places = _State.places, places
    try:
        yield
    finally:
        _State.places = before


@contextmanager
def option_sources_of_cluster(places: Mapping[str, str]) -> Iterator[None]:
    """State the places for what this thread does for one cluster of a fleet."""
    token = _of_cluster.set(places)
    try:
        yield
    finally:
        _of_cluster.reset(token)
