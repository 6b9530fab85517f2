"""Addresses of options, files and variables: of brokers, of ZooKeeper, of S3 servers and to listen on."""

import ipaddress
import re
from collections.abc import Mapping
from typing import Final

from jobs.core.errors import UsageError

LOOPBACK: Final = "127.0.0.1"

_LOOPBACK_NAMES: Final = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"})

_ADDRESS: Final = re.compile(r"(?:(?P<host>[\w.-]+|\[[0-9A-Fa-f:.]+\])?:)?(?P<port>[0-9]{1,5})", re.ASCII)
_LAST_PORT: Final = 65535

_SERVER: Final = re.compile(r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")


def parse_address(option: str, text: str) -> tuple[str, int]:
    """Parse HOST:PORT; the default host is the loopback address.

    >>> parse_address("--listen", "9308"), parse_address("--listen", "[::]:9308")
    (('127.0.0.1', 9308), ('::', 9308))
    """
    refuse_credentials(option, text, "give HOST:PORT, or PORT on the loopback")
    parts = _ADDRESS.fullmatch(text)
    if parts is None or int(parts["port"]) > _LAST_PORT:
        raise UsageError(f"{option} {text!r} is not an address: expected HOST:PORT, or PORT on the loopback")
    return (parts["host"] or LOOPBACK).strip("[]"), int(parts["port"])


def refuse_credentials(place: str, address: str, instead: str) -> None:
    """Raise UsageError, which does not show it, for an address of `place` that may have a password in it."""
    if "@" in address:
        raise UsageError(
            f"{place}: the address contains @, as one with a user and a password, which messages and logs would show; "
            f"{instead}"
        )


def refuse_invalid_servers(place: str, text: str, form: str, config: str) -> None:
    """Raise UsageError for servers with a user or a protocol; `config` is the option that gives both.

    A chroot may have an @ in it.

    >>> refuse_invalid_servers("--zookeeper", "zk1:2181,[::1]/kafka@east", "HOST:PORT[/chroot]", "--zookeeper-config")
    """
    servers = (text.partition("/")[0] if "[/chroot]" in form else text).split(",")
    if not all(_SERVER.fullmatch(server.strip()) for server in servers):
        refuse_credentials(place, text, f"give {form}, and the user in the file of {config}")
    if "://" in text:
        raise UsageError(f"{place} is {text!r}; expected {form}, and the protocol in the file of {config}")


def is_loopback(host: str) -> bool:
    """Return whether only processes of this host can connect to an address or a name.

    >>> [is_loopback(host) for host in ("127.0.1.1", "::1", "localhost", "10.0.0.7", "broker1.example")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() in _LOOPBACK_NAMES


S3_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""Environment variables with the address of an S3 server, by precedence, which deltalake, Arrow and Spark agree on."""


def s3_endpoint(environment: Mapping[str, str]) -> str | None:
    """Return the address of the S3 server that every reader of a warehouse uses, None for Amazon's."""
    return next((environment[name] for name in S3_ENDPOINTS if environment.get(name)), None)


_ALLOW_HTTP: Final = frozenset({"aws_allow_http", "allow_http"})
_TRUE: Final = frozenset({"1", "true", "on", "yes", "y"})


def allows_http(environment: Mapping[str, str]) -> bool:
    """Return whether deltalake may connect to an S3 server at an address of http://; Arrow and Spark always may.

    >>> [allows_http({name: "True"}) for name in ("AWS_ALLOW_HTTP", "ALLOW_HTTP", "AZURE_ALLOW_HTTP")]
    [True, True, False]
    """
    return any(value.lower() in _TRUE for name, value in environment.items() if name.lower() in _ALLOW_HTTP)


_AMAZON_S3: Final = re.compile(
    r"https?://((bucket\.)?vpce-[a-z0-9-]+\.)?s3(-[a-z0-9-]+)?(\.dualstack)?(\.[a-z]+(-[a-z]+)+-\d+)?(\.vpce)?"
    r"\.amazonaws\.com(\.cn)?(:443)?/?"
)


def is_amazon_s3(address: str) -> bool:
    """Return whether an address is one of Amazon's S3, and not of a server on a host or behind a balancer of Amazon's.

    All addresses of S3 lead to the same bucket, as the names of buckets are unique there.

    >>> is_amazon_s3("https://s3.eu-west-1.amazonaws.com"), is_amazon_s3("https://s3.cn-north-1.amazonaws.com.cn/")
    (True, True)
    >>> is_amazon_s3("https://bucket.vpce-1a2b-5e6f.s3.us-east-1.vpce.amazonaws.com"), is_amazon_s3("https://s3.example")
    (True, False)
    >>> is_amazon_s3("https://s3-1.eu-west-1.elb.amazonaws.com"), is_amazon_s3("https://s3.amazonaws.com.example")
    (False, False)
    """
    return _AMAZON_S3.fullmatch(address.lower()) is not None
