"""Requests to Kafka's controller through the Admin API, by kafka-python: elections, reassignments, topics, configs."""

import gc
import re
import socket
import ssl
import sys
import time
import warnings
from base64 import urlsafe_b64decode
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID

from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, OffsetSpec
from kafka.errors import (
    BrokerResponseError,
    ClusterAuthorizationFailedError,
    IncompatibleBrokerVersion,
    KafkaError,
    KafkaTimeoutError,
    RequestTimedOutError,
    for_code,
)
from kafka.net import manager
from kafka.protocol.admin import (
    AlterConfigsRequest,
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
)

from jobs.adapters.brokers.first_answers import answering
from jobs.adapters.brokers.kerberos_mechanism import LOGIN
from jobs.adapters.brokers.oauth_tokens import TOKEN_KEYS, TokenError, TokenProvider, provider_of
from jobs.adapters.kerberos.login import GSSAPI, KERBEROS_KEYS, KerberosError, KerberosLogin, login_of
from jobs.core.errors import RefusedError, SurveyorError, UsageError
from jobs.core.jaas import login_module
from jobs.core.logs import module_logger, quiet_logger
from jobs.core.option_sources import COMMAND_CONFIG, option_name, value_at
from jobs.core.properties import HOST_NAMES, PROVIDERS, TOKEN_COMMAND, read_key_values
from jobs.core.signals import uninterruptible
from jobs.core.tls_files import ENABLED_PROTOCOLS, TLS_KEYS, client_context
from schemas.replica_assignment import target
from schemas.response_codes import NO_ERROR
from schemas.rows import Broker, Key
from schemas.text import abbreviate
from schemas.znode_json import PLAINTEXT, SECURITY_PROTOCOLS

T = TypeVar("T")

Creation = tuple[dict[int, list[int]], dict[str, str]]
"""Replicas by partition, and config."""

ELECTION_NOT_NEEDED: Final = 84
NO_REASSIGNMENT_IN_PROGRESS: Final = 85
MAX_PARTITIONS_PER_REQUEST: Final = 1000
"""Partitions or topics in one request; a new topic with more partitions gets a separate request.

The controller takes a second or two of its 20 to create this many. The controller of a KRaft cluster refuses a request
for which it would write more than 10,000 records (`QuorumController.MAX_RECORDS_PER_USER_OP`).
"""

PREFERRED: Final = 0
UNCLEAN: Final = 1

PROTOCOL: Final = "security.protocol"
MECHANISM: Final = "sasl.mechanism"
CLIENT_ID: Final = "client.id"
MECHANISM_OF_LIBRDKAFKA: Final = "sasl.mechanisms"

OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER, GSSAPI)

_SETTINGS: Final = {
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    CLIENT_ID: "client_id",
}
"""Keys of client.properties that kafka-python has too."""

_KNOWN_KEYS: Final = (
    *(PROTOCOL, MECHANISM, MECHANISM_OF_LIBRDKAFKA),
    *_SETTINGS,
    *TOKEN_KEYS,
    *KERBEROS_KEYS,
    *TLS_KEYS,
    *(HOST_NAMES, ENABLED_PROTOCOLS),
)
_HARMLESS: Final = re.compile(
    r"ssl\.(protocol|(keymanager|trustmanager)\.algorithm|secure\.random\.implementation|client\.auth)"
    r"|sasl\.login\.(refresh|connect|read|retry)\..*"
    r"|sasl\.kerberos\.(kinit\.cmd|min\.time\.before\.relogin|ticket\.renew\..*)"
    r"|sasl\.oauthbearer\.(clock|expected|header|jwks|scope|sub)\..*"
    r"|(sasl\.mechanism|security)\.inter\.broker\.protocol|sasl\.enabled\.mechanisms"
)
"""Keys of TLS and SASL that tune Kafka's client, or are a broker's: without them nothing less is checked."""

KAFKA_TOKEN_HANDLER: Final = "OAuthBearerLoginCallbackHandler"  # noqa: S105 - a class of Kafka

_JAAS_SECTION: Final = "KafkaClient"
_DENIED: Final = ("[Error 29]", "[Error 31]")
"""How kafka-python begins the texts of TOPIC_AUTHORIZATION_FAILED and CLUSTER_AUTHORIZATION_FAILED."""

_GUARDED_BY: Final = {"topic": "topic", "broker": "cluster"}
"""The resource that an ACL for the configs of a resource names."""

TOKEN_PROVIDER: Final = "sasl_oauth_token_provider"  # noqa: S105 - the name of a setting
"""kafka-python's setting that supplies OAuth tokens."""

TLS: Final = "ssl_context"
"""kafka-python's setting of the TLS context."""

quiet_logger("kafka")


CONNECT_TIMEOUT_SECONDS: Final = 5.0
"""Seconds that a connection may take."""

SEND_SECONDS: Final = 5.0
"""Seconds after a call within which its request must be sent; it may have to wait for a connection.

The lease is checked right before the call, and lasts as long (`WarehouseLease.margin_seconds`).
"""

REAUTHENTICATION_POLL_SECONDS: Final = 0.05
"""Seconds between two looks at whether a connection has authenticated again (`connections.max.reauth.ms`)."""

OFFSETS_TIMEOUT_MS: Final = 5_000
"""Milliseconds for finding the leaders and their offsets."""

NO_CREDENTIALS: Final = (TokenError, KerberosError)
"""Errors of a token or a ticket that cannot be obtained."""

UNKNOWN_OUTCOME: Final = (KafkaError, OSError)
"""Errors that leave the outcome of a request unknown."""


class _BoundedTlsTransport(manager.KafkaSSLTransport):  # type: ignore[misc] # kafka-python is untyped
    """A TLS transport whose handshake has a timeout; kafka-python itself waits forever for a stopped broker."""

    async def handshake(self) -> None:
        until = time.monotonic() + CONNECT_TIMEOUT_SECONDS
        while True:
            try:
                self._sock.do_handshake()
            except ssl.SSLWantReadError:
                await self._net.wait_read(self._sock, until)
            except ssl.SSLWantWriteError:
                await self._net.wait_write(self._sock, until)
            else:
                return


manager.KafkaSSLTransport = _BoundedTlsTransport  # kafka-python has no public way to replace it


def batches(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Split what concerns one partition or topic each into the rows of one request after another.

    >>> [len(batch) for batch in batches(range(2 * MAX_PARTITIONS_PER_REQUEST + 1))]
    [1000, 1000, 1]
    """
    for start in range(0, len(rows), MAX_PARTITIONS_PER_REQUEST):
        yield rows[start : start + MAX_PARTITIONS_PER_REQUEST]


class AdminUnavailableError(SurveyorError):
    """No broker answered the Admin API."""


class LateRequestError(AdminUnavailableError):
    """A request could not be sent in time, and was not sent."""


def read_properties(path: Path | None) -> dict[str, Any]:
    """Read a client.properties file into kafka-python's settings.

    Raise UsageError for a key that would change security and is not supported. Other unknown keys are ignored with a
    warning, as by Kafka's tools. All settings are strings, except for TOKEN_PROVIDER, LOGIN and TLS.
    """
    if path is None:
        return {}
    file = value_at(COMMAND_CONFIG, path)
    values = read_key_values(path, file, [key for key in _KNOWN_KEYS if key != CLIENT_ID], is_known=lambda _: True)
    protocol, mechanism = _protocol_and_mechanism(values, file)
    _sort_out_unknown(values, protocol, file)
    settings: dict[str, Any] = {_SETTINGS[key]: value for key, value in values.items() if key in _SETTINGS and value}
    if PROTOCOL in values:
        settings["security_protocol"] = protocol
    if mechanism is not None:
        settings["sasl_mechanism"] = mechanism
    if mechanism == OAUTHBEARER:
        settings[TOKEN_PROVIDER] = provider_of(values, file)
    elif mechanism == GSSAPI:
        is_given = not values.keys().isdisjoint({MECHANISM, MECHANISM_OF_LIBRDKAFKA})
        where = file if is_given else f"{file}: {MECHANISM} is {GSSAPI} by default"
        settings[LOGIN] = login_of(values, where, _JAAS_SECTION, "kafka")
    elif mechanism is not None and (module := login_module(values, file, _JAAS_SECTION)) is not None:
        passwords = {"sasl_plain_username": "username", "sasl_plain_password": "password"}
        settings = {name: module.options[key] for name, key in passwords.items() if key in module.options} | settings
    if protocol in {"SSL", "SASL_SSL"}:
        settings[TLS] = client_context(values, file)
    return settings


def _protocol_and_mechanism(values: Mapping[str, str], file: str) -> tuple[str, str | None]:
    """Return the security protocol, of which Kafka accepts any case, and the mechanism of SASL, by default GSSAPI."""
    protocol = values.get(PROTOCOL, PLAINTEXT).upper()
    if protocol not in SECURITY_PROTOCOLS:
        raise UsageError(f"{file}: {PROTOCOL} is {values[PROTOCOL]!r}; it is one of {', '.join(SECURITY_PROTOCOLS)}")
    if not protocol.startswith("SASL"):
        return protocol, None
    mechanism = values.get(MECHANISM, values.get(MECHANISM_OF_LIBRDKAFKA, GSSAPI))
    if mechanism not in MECHANISMS:
        raise UsageError(
            f"{file}: {MECHANISM} is {mechanism!r}; it is one of {', '.join(MECHANISMS)}; for tokens of a cloud, "
            f"{OAUTHBEARER} with {TOKEN_COMMAND} may do"
        )
    return protocol, mechanism


def _sort_out_unknown(values: Mapping[str, str], protocol: str, file: str) -> None:
    """Raise UsageError for unknown keys that would change security; warn once of the other unknown keys."""
    in_use = {"ssl": protocol.endswith("SSL"), "sasl": protocol.startswith("SASL"), "security": protocol != PLAINTEXT}
    unknown = [key for key in values if key not in _KNOWN_KEYS and not key.startswith(PROVIDERS)]
    for key in unknown:
        subject = key.removeprefix("enable.").partition(".")[0]
        is_default = values[key].rpartition(".")[2].lower() in {"", "true", KAFKA_TOKEN_HANDLER.lower()}
        if in_use.get(subject, False) and not _HARMLESS.fullmatch(key) and not is_default:
            raise UsageError(
                f"{file}: {key!r} changes how this client authenticates or what it trusts, and is not supported; "
                f"supported are {', '.join(_KNOWN_KEYS)}"
            )
    if unknown:
        _warn_of_ignored(file, tuple(unknown))


@cache
def _warn_of_ignored(file: str, keys: tuple[str, ...]) -> None:
    """Warn of keys once in a process, although the file is read for each kind of request."""
    module_logger(__name__).warning(
        "surveyor: warning: %s: ignored, as they have no meaning for this client: %s", file, ", ".join(sorted(keys))
    )


def require_credentials(settings: Mapping[str, Any], *, run_commands: bool = True) -> None:
    """Raise one of NO_CREDENTIALS if OAuth or Kerberos is configured and there is no valid token or ticket.

    kafka-python itself requests it in the middle of a connection, where an error looks like a broker that does not
    answer. Without `run_commands`, a token that a command prints counts as valid.
    """
    provider: TokenProvider | None = settings.get(TOKEN_PROVIDER)
    if provider is not None and (run_commands or not provider.runs_command):
        provider.token()
    login: KerberosLogin | None = settings.get(LOGIN)
    if login is not None:
        login.credentials()


def login_failure(settings: Mapping[str, Any], addresses: Iterable[str]) -> str | None:
    """Return why the last login by Kerberos at one of these addresses failed on this side, None if it did not."""
    login: KerberosLogin | None = settings.get(LOGIN)
    return None if login is None else login.failure(address.rpartition(":")[0] for address in addresses)


def bootstrap(brokers: Sequence[Broker], settings: dict[str, str], listener: str | None = None) -> list[str]:
    """Return the addresses of the endpoints with the configured security protocol and, if given, listener.

    Brokers of a KRaft cluster do not report the listener of an endpoint, which is the listener of the connection.
    """
    protocol = settings.get("security_protocol", "PLAINTEXT")
    return [
        f"{endpoint.host}:{endpoint.port}"
        for broker in brokers
        for endpoint in broker.endpoints or ()
        if endpoint.security_protocol == protocol and (not listener or endpoint.listener in {None, listener})
    ]


@dataclass(frozen=True, slots=True)
class Admin:
    """A connection to the controller; each call returns a Kafka error code by partition or topic."""

    client: KafkaAdminClient

    def elect_preferred(self, partitions: Sequence[Key]) -> dict[Key, int]:
        return self._elect(PREFERRED, partitions)

    def elect_unclean(self, partitions: Sequence[Key]) -> dict[Key, int]:
        """Elect a live replica if no in-sync replica is live; records that it does not have are lost."""
        return self._elect(UNCLEAN, partitions)

    def _elect(self, election: int, partitions: Sequence[Key]) -> dict[Key, int]:
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, partition in partitions:
            by_topic[topic].append(partition)
        with _require_controller():
            response = self.client.elect_leaders(election, dict(by_topic), raise_errors=False)
        codes = {
            (result.topic, partition.partition_id): int(partition.error_code)
            for result in response.replica_election_results
            for partition in result.partition_result
        }
        refused = getattr(response, "error_code", NO_ERROR)
        return codes if refused == NO_ERROR else dict.fromkeys(partitions, int(refused)) | codes

    def reassign(self, targets: Mapping[Key, list[int] | None]) -> dict[Key, int]:
        """Request target replicas; None cancels a running reassignment."""
        request = {TopicPartition(*key): replicas for key, replicas in targets.items()}
        try:
            with _require_2_4():
                response = self.client.alter_partition_reassignments(request)
        except ClusterAuthorizationFailedError as error:  # an answer that kafka-python turns into an error
            return dict.fromkeys(targets, int(error.errno))
        return {(tp.topic, tp.partition): NO_ERROR if error is None else error.errno for tp, error in response.items()}

    def reassignments(self) -> dict[Key, list[int]]:
        """Return the targets of all running reassignments, of any client (`ListPartitionReassignments`)."""
        try:
            response = self._list_reassignments()
        except UNKNOWN_OUTCOME:
            self.client._controller_id = None  # noqa: SLF001 - kafka-python caches a former controller
            try:
                response = self._list_reassignments()
            except UNKNOWN_OUTCOME as error:
                raise AdminUnavailableError(f"Kafka's controller did not list its reassignments ({error})") from None
        return {
            (tp.topic, tp.partition): target(assignment["replicas"], assignment["removing_replicas"])
            for tp, assignment in response.items()
        }

    def unresponsive_reason(self) -> str | None:
        """Return a message if the controller received a request and did not answer; None if it answered, even an error.

        `ListPartitionReassignments` goes through the controller's event thread, as all requests to the controller do.
        """
        try:
            self.client.list_partition_reassignments()
        except (KafkaTimeoutError, RequestTimedOutError) as error:
            return f"Kafka's controller does not answer ({describe_error(error)})"
        except (IncompatibleBrokerVersion, BrokerResponseError):
            return None
        except (RuntimeError, IndexError, *UNKNOWN_OUTCOME) as error:  # IndexError: kafka-python knows no broker
            raise AdminUnavailableError(f"Kafka's controller cannot be reached ({error})") from None
        return None

    def _list_reassignments(self) -> Any:  # noqa: ANN401 - kafka-python is untyped
        with _require_2_4():
            return self.client.list_partition_reassignments()

    def create_topics(self, topics: Mapping[str, Creation]) -> dict[str, int]:
        """Create topics in one request; return the error code of each."""
        request = {name: {"assignments": replicas, "configs": config} for name, (replicas, config) in topics.items()}
        with _require_controller():
            response = self.client.create_topics(request, raise_errors=False)
        return {str(topic["name"]): int(topic["error_code"]) for topic in response["topics"]}

    def create_partitions(self, topic: str, total: int, added: list[list[int]]) -> int:
        """Add partitions, for a total of `total`; return the error code."""
        request = {topic: {"count": total, "assignments": added}}
        with _require_controller():
            response = self.client.create_partitions(request, raise_errors=False)
        return int(response.results[0].error_code)

    def alter_config(self, topic: str, overrides: Mapping[str, str | None]) -> int | str:
        """Set a topic's overrides, or delete those that are None; return NO_ERROR or the broker's message."""
        return self.alter_override("topic", topic, overrides)

    def alter_override(self, kind: str, resource: str, overrides: Mapping[str, str | None]) -> int | str:
        """Set or delete overrides of a `broker` or a `topic`; the broker "" is the default of all brokers."""
        entries = {name: ("DELETE" if value is None else "SET", value) for name, value in overrides.items()}
        request = ConfigResource(ConfigResourceType[kind.upper()], resource, entries)
        responses = self.client.alter_configs([request], raise_on_unknown=False, incremental=True)
        response = responses[kind][resource]
        if response == "OK":
            return NO_ERROR
        if not str(response).startswith(_DENIED):
            return str(response)
        return f"{response} This client needs the permission ALTER_CONFIGS on the {_GUARDED_BY[kind]}"

    def record_count(self, topic: str) -> int | None:
        """Return the number of offsets in all partitions, None if a leader did not answer.

        This is an upper bound of the number of records, as compaction and transactions leave gaps.
        """
        try:
            (known,) = self.client.describe_topics([topic])
            partitions = [TopicPartition(topic, row["partition_index"]) for row in known["partitions"]]
            first, last = (
                self.client.list_partition_offsets(dict.fromkeys(partitions, spec), timeout_ms=OFFSETS_TIMEOUT_MS)
                for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
            )
        except (RuntimeError, *UNKNOWN_OUTCOME):
            return None
        return sum(int(last[partition].offset - first[partition].offset) for partition in partitions)

    def delete_topics(self, topics: Mapping[str, str | None]) -> dict[str, int]:
        """Delete topics by their ids, so that a topic recreated in the meantime is kept; by name if they have no id."""
        ids = {name: _uuid(topic_id) for name, topic_id in topics.items() if topic_id is not None}
        names = {str(uuid): name for name, uuid in ids.items()}
        request = [ids.get(name, name) for name in topics]
        with _require_controller():
            response = self.client.delete_topics(request, raise_errors=False)
        results = ((names.get(str(result["topic_id"]), result["name"]), result) for result in response["topics"])
        return {name: int(result["error_code"]) for name, result in results}


def _uuid(topic_id: str) -> UUID:
    """Decode a topic id as stored in ZooKeeper: 22 characters of base64url."""
    return UUID(bytes=urlsafe_b64decode(f"{topic_id}=="))


@contextmanager
def _require_2_4() -> Iterator[None]:
    """Raise RefusedError for requests that brokers before 2.4 do not support."""
    try:
        with _require_controller():
            yield
    except IncompatibleBrokerVersion:
        raise RefusedError(
            "these brokers do not support reassignments by the Admin API (Kafka 2.4 or later)",
        ) from None


@contextmanager
def _require_controller() -> Iterator[None]:
    """Turn kafka-python's error for a controller that it cannot find into AdminUnavailableError; nothing was done."""
    try:
        yield
    except RuntimeError as error:
        raise AdminUnavailableError(f"Kafka's controller did not answer ({error}); commit again") from None


def is_reachable(addresses: Sequence[str]) -> bool:
    """Return whether one of these addresses accepts a connection from this host."""
    for address in addresses:
        host, _, port = address.rpartition(":")
        with suppress(OSError), socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_SECONDS):
            return True
    return False


_SOCKET_OPTIONS: Final = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
if sys.platform == "linux":  # a request that the network holds up for longer must not arrive after all
    _SOCKET_OPTIONS.append((socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * SEND_SECONDS)))

_CHANGES: Final = (
    AlterConfigsRequest,
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
)
"""Requests that change the cluster."""


class _AdminClient(KafkaAdminClient):  # type: ignore[misc] # kafka-python is untyped
    """A client that sends a change within `send_seconds` of its call, or not at all.

    kafka-python itself keeps a request until there is a connection, and sends it again if the controller has changed.
    This client also accepts "" for the default of all brokers, as Kafka does, and sends it to any broker.
    """

    send_seconds = SEND_SECONDS

    def __init__(self, **configs: Any) -> None:  # noqa: ANN401 - kafka-python's settings
        super().__init__(**configs)
        self._called_at = time.monotonic(), time.time()
        self._any_node = self._manager.least_loaded_node
        self._manager.least_loaded_node = self._answering_node
        self._run = self._manager.run
        self._manager.run = self._run_call
        self._manager.send = self._send_in_time

    def _answering_node(self) -> Any:  # noqa: ANN401
        """Return the broker at the address that answered; kafka-python itself picks one by chance."""
        nodes = self._manager.cluster.brokers()
        node = next(
            (row.node_id for row in nodes if f"{row.host}:{row.port}" == self.config["bootstrap_servers"]), None
        )
        connection = self._manager._conns.get(node)  # noqa: SLF001 - kafka-python has no public way to read it
        is_usable = node is not None and not self._manager.connection_delay(node)
        return node if is_usable and not (connection and connection.paused) else self._any_node()

    def _run_call(self, *call: Any) -> Any:  # noqa: ANN401
        """Run a call; kafka-python drops an exception that a signal raises in its event loop, and waits on."""
        self._called_at = time.monotonic(), time.time()
        with uninterruptible():
            return self._run(*call)

    async def _send_in_time(self, request: Any, node_id: Any = None, request_timeout_ms: Any = None) -> Any:  # noqa: ANN401
        node = self._manager.least_loaded_node() if node_id is None else node_id
        connection = await self._manager.get_connection(node)
        if isinstance(request, _CHANGES):
            while connection._reauth.is_reauthenticating:  # noqa: SLF001 - it would keep the request until that is over
                await self._net.sleep(REAUTHENTICATION_POLL_SECONDS)
            self._refuse_late()
        return await connection.send_request(request, request_timeout_ms=request_timeout_ms)

    def _refuse_late(self) -> None:
        """Raise LateRequestError once it is too late; only the wall clock counts a suspended machine."""
        monotonic, wall = self._called_at
        if max(time.monotonic() - monotonic, time.time() - wall) > self.send_seconds:
            raise LateRequestError(
                f"the connection to a broker took more than {self.send_seconds:g} s, so nothing was requested; "
                "run the same command again"
            )

    @staticmethod
    def _group_config_resources(config_resources: Sequence[Any]) -> Any:  # noqa: ANN401 - as kafka-python has it
        named_ones = [resource for resource in config_resources if resource.name]
        of_brokers, others = KafkaAdminClient._group_config_resources(named_ones)  # noqa: SLF001 - the original does not accept ""
        return of_brokers, [*others, *(resource for resource in config_resources if not resource.name)]


def _first_client(
    addresses: Sequence[str], settings: dict[str, str], seconds: float, errors: dict[str, Exception]
) -> Any:  # noqa: ANN401
    """Return kafka-python's client for the first address that answers; None with the errors if none does."""
    for address in answering(addresses, settings, seconds, errors):
        try:
            with uninterruptible():
                return _AdminClient(
                    bootstrap_servers=address,
                    bootstrap_timeout_ms=int(1000 * seconds),
                    request_timeout_ms=20_000,
                    socket_options=_SOCKET_OPTIONS,
                    **settings,
                )
        except (*NO_CREDENTIALS, KafkaError, ValueError, OSError, IndexError) as error:  # IndexError: no broker known
            errors[address] = error
    return None


@contextmanager
def connected_admin(
    addresses: Sequence[str],
    settings: dict[str, str],
    controller: int | None = None,
    *,
    bootstrap_seconds: float = 10.0,
) -> Iterator[Admin]:
    """Yield an Admin; raise AdminUnavailableError if no broker answers within `bootstrap_seconds`.

    The first address is preferred. `controller` is the controller in ZooKeeper, which requests are sent to. Brokers
    still report a former controller, which may be Surveyor's id, until the new one has sent them UpdateMetadata, and
    kafka-python would rely on that.
    """
    if not addresses:
        protocol = settings.get("security_protocol", "PLAINTEXT")
        raise AdminUnavailableError(
            f"no registered broker has a {protocol} endpoint for the Admin API: "
            f"check security.protocol in {option_name(COMMAND_CONFIG)}, and that brokers run",
        )
    errors: dict[str, Exception] = {}
    with warnings.catch_warnings():
        # kafka-python leaves the sockets of a failed client to the garbage collector
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            require_credentials(settings)
            client = _first_client(addresses, settings, bootstrap_seconds, errors)
        except NO_CREDENTIALS as error:
            client = None
            errors = dict.fromkeys(addresses, error)
        if client is None:
            gc.collect()
    if client is None:
        failure = login_failure(settings, addresses)
        tried = [f"{address} ({failure or describe_error(error)})" for address, error in errors.items()]
        raise AdminUnavailableError(
            f"no broker answered the Admin API at {abbreviate(tried)}; "
            f"check {option_name(COMMAND_CONFIG)} and that brokers run",
        )
    client._controller_id = controller  # noqa: SLF001 - kafka-python has no public way to set it
    try:
        yield Admin(client)
    finally:
        client.close()


def describe_error(error: Exception) -> str:
    """Describe an error, with its class name once.

    >>> describe_error(KafkaTimeoutError("after 20 s")), describe_error(TimeoutError("timed out"))
    ('KafkaTimeoutError: after 20 s', 'TimeoutError: timed out')
    """
    name, text = type(error).__name__, str(error)
    return text if text.startswith(name) else f"{name}: {text}"


def error_name(code: int) -> str:
    """Return the name of a Kafka error code.

    >>> error_name(84)
    'ElectionNotNeededError (84)'
    """
    return f"{for_code(code).__name__} ({code})"
