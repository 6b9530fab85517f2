"""A real ZooKeeper 3.9 and real Kafka 3.9 brokers as child processes, for the demo and the tests.

They listen on 127.0.0.1 only. ZooKeeper runs from pyspark's jars and Kafka from its own, with separate class paths,
since their versions of ZooKeeper and slf4j differ. `jobs.adapters.embedded.cluster` combines them.
"""

import json
import struct
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from jobs.adapters.embedded.ports import accepts
from jobs.adapters.embedded.processes import Server, four_letter_word
from jobs.adapters.java.home import find_java
from jobs.adapters.java.jars import KAFKA_VERSION, kafka_jars, zookeeper_jars
from jobs.adapters.java.resolvers import class_path
from jobs.core.addresses import LOOPBACK
from jobs.core.errors import SurveyorError
from jobs.core.logs import quiet_logger
from schemas.znode_paths import BROKER_IDS

if TYPE_CHECKING:
    from collections.abc import Iterator

ZOOKEEPER, BROKER = "zookeeper", "broker"

_SERVER_JARS = (
    "audience-annotations-",
    "commons-cli-",
    "commons-io-",
    "jackson-annotations-",
    "jackson-core-",
    "jackson-databind-",
    "log4j-api-",
    "log4j-core-",
    "log4j-slf4j2-impl-",
    "metrics-core-",
    "netty-",
    "slf4j-api-",
    "snappy-java-",
    "zookeeper-",
)

SUPER_SECRET = 0xB3415C00
"""`ZooKeeperServer.superSecret`."""

_PASSWORD_BYTES = 16

_MULTIPLIER, _INCREMENT, _BITS = 0x5DEECE66D, 0xB, 48
"""Constants of `java.util.Random`."""

# kazoo would warn of connections that we close ourselves
_QUIET = quiet_logger("kazoo.embedded")

# By default ZooKeeper bounds session timeouts by ticks; this allows 1 to 60 s.
_ZOO_CFG = """\
clientPort={port}
clientPortAddress=127.0.0.1
dataDir={data}
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=60000
maxClientCnxns=0
preAllocSize=1024
admin.enableServer=false
4lw.commands.whitelist=srvr,ruok
"""

_LOG4J2 = """\
status=error
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %c{1}: %m%n
rootLogger.level=info
rootLogger.appenderRef.out.ref=out
"""

LOG4J = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c{1}: %m%n
"""


class EmbeddedZooKeeper(Server):
    """A standalone ZooKeeper server; `max_buffer` is its jute.maxbuffer in bytes."""

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        max_buffer: int | None = None,
        heap: str = "256m",
        jvm_options: Sequence[str] = (),
    ) -> None:
        super().__init__(ZOOKEEPER, folder, port)
        self.max_buffer = max_buffer
        self.heap = heap
        self.jvm_options = jvm_options

    @property
    def connect(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def config(self) -> str:
        return _ZOO_CFG.format(port=self.port, data=self.folder / "data")

    def command(self) -> list[str]:
        config = write_file(self.folder / "zoo.cfg", self.config())
        logging = write_file(self.folder / "log4j2.properties", _LOG4J2)
        # the first compiler (C1) only, as the second one does not pay off for a server that runs for one test
        quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        options = [f"-Xmx{self.heap}", *self.jvm_options, f"-Dlog4j2.configurationFile={logging}"]
        if self.max_buffer is not None:
            options.append(f"-Djute.maxbuffer={self.max_buffer}")
        main = ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
        return [str(find_java()), *quick, *options, "-cp", class_path(zookeeper_class_path()), *main]

    def is_ready(self) -> bool:
        # not `ruok`, which is answered before requests are served
        return "Mode: " in four_letter_word(self.port, "srvr")


BROKER_HEAP: Final = "512m"
"""Heap for some thousand replicas."""

FEW_AND_SMALL: Final = {
    # otherwise each broker would open fifty logs of each topic at each start
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    # the default of 128 MB is zeroed at each start and is a quarter of the heap
    "log.cleaner.dedupe.buffer.size": "2097152",
}
"""Settings by which a broker of a small cluster starts soon."""


class KafkaServer(Server):
    """A Kafka process: a broker of a cluster with ZooKeeper, or a node of a KRaft cluster."""

    def __init__(  # noqa: PLR0917 - what subclasses take
        self,
        name: str,
        folder: Path,
        port: int | None,
        rack: str | None,
        overrides: Mapping[str, str] | None,
        heap: str,
        kafka_version: str = KAFKA_VERSION,
    ) -> None:
        super().__init__(name, folder, port)
        self.rack = rack
        self.overrides = dict(overrides or {})
        self.heap = heap
        self.kafka_version = kafka_version

    @property
    def jars(self) -> list[Path]:
        """The class path, which determines the Kafka version."""
        return kafka_jars(self.kafka_version)

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @abstractmethod
    def properties(self) -> dict[str, str]:
        """Return the settings."""

    def command(self) -> list[str]:
        java, config = self._java()
        return [*java, "kafka.Kafka", str(config)]

    def _java(self) -> tuple[list[str], Path]:
        """Write the settings of server and log; return the java that runs Kafka's classes, and the settings."""
        lines = (f"{name}={value}\n" for name, value in self.properties().items())
        config = write_file(self.folder / "server.properties", "".join(lines))
        logging = write_file(self.folder / "log4j.properties", LOG4J)
        # the first compiler (C1) only: on few cores, several brokers start in half the time
        options = [f"-Xmx{self.heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        options.append(f"-Dlog4j.configuration=file:{logging}")
        return [str(find_java()), *options, "-cp", class_path(self.jars)], config


class EmbeddedKafka(KafkaServer):
    """A broker with Kafka's defaults, except for `properties`."""

    session_timeout_ms = 18_000
    """Kafka's default. With 6 s, brokers that started on a stalling machine lost their session and exited."""

    connect_seconds = 15.0

    def __init__(
        self,
        zookeeper_connect: str,
        broker_id: int,
        folder: Path,
        *,
        rack: str | None = None,
        port: int | None = None,
        overrides: Mapping[str, str] | None = None,
        heap: str = BROKER_HEAP,
    ) -> None:
        super().__init__(f"broker-{broker_id}", folder, port, rack, overrides, heap)
        self.zookeeper_connect = zookeeper_connect
        self.broker_id = broker_id

    def properties(self) -> dict[str, str]:
        rack = {} if self.rack is None else {"broker.rack": self.rack}
        return {
            "broker.id": str(self.broker_id),
            "zookeeper.connect": self.zookeeper_connect,
            "zookeeper.session.timeout.ms": str(self.session_timeout_ms),
            "listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(self.folder / "data"),
            "auto.leader.rebalance.enable": "false",
            **FEW_AND_SMALL,
            **rack,
            **self.overrides,
        }

    def start(self) -> None:
        """Start after the registration of an earlier run has expired, because a broker whose id is registered exits."""
        if not self.is_running():
            if self._process is not None:
                self.expire()
            self._await_expiry()
        super().start()

    def expire(self) -> None:
        """End the broker's session at once, as ZooKeeper does after the session timeout.

        This deletes the registration and all other ephemeral znodes of a killed broker. A registration with another
        port belongs to another process and is kept.
        """
        with _session(self.zookeeper_connect, self.connect_seconds) as client, suppress(NoNodeError):
            data, stat = client.get(f"{BROKER_IDS}/{self.broker_id}")
            if json.loads(data)["port"] == self.port:
                end_session(self.zookeeper_connect, stat.ephemeralOwner)

    def is_ready(self) -> bool:
        # brokers register before they listen, so without the log another process could be listening on our port
        started = f"[KafkaServer id={self.broker_id}] started" in self.log_of_this_run()
        return started and accepts(self.port) and self.is_registered()

    def is_registered(self) -> bool:
        with _session(self.zookeeper_connect, self.connect_seconds) as client:
            return client.exists(f"{BROKER_IDS}/{self.broker_id}") is not None

    def _await_expiry(self) -> None:
        deadline = time.monotonic() + 1.25 * self.session_timeout_ms / 1000
        while self.is_registered():
            if time.monotonic() > deadline:
                raise SurveyorError(
                    f"broker {self.broker_id} is registered in ZooKeeper {self.zookeeper_connect} by another process "
                    f"({BROKER_IDS}/{self.broker_id}): stop that process, or choose another id"
                )
            time.sleep(0.1)


def zookeeper_class_path() -> list[Path]:
    """Return the jars of pyspark that a ZooKeeper server uses, because the JVM searches all jars on its class path."""
    return [jar for jar in zookeeper_jars() if jar.name.startswith(_SERVER_JARS)]


@contextmanager
def _session(connect: str, seconds: float) -> "Iterator[KazooClient]":
    client = KazooClient(connect, timeout=10, logger=_QUIET)
    try:
        client.start(timeout=seconds)
        yield client
    except KazooTimeoutError as error:
        raise SurveyorError(f"ZooKeeper at {connect} does not answer: start it before the brokers") from error
    finally:
        client.stop()
        client.close()


def write_file(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def end_session(connect: str, session_id: int) -> None:
    """Close another client's session, so that tests need not wait for its timeout; no-op if it has ended.

    A client can resume a session by its id and password, and ZooKeeper derives the password from the id
    (`ZooKeeperServer.generatePasswd`). So any client that reads an ephemeral znode can close its owner's session. The
    session's ephemeral znodes are deleted when this returns, as after the timeout.
    """
    client = KazooClient(connect, client_id=(session_id, session_password(session_id)), timeout=10, logger=_QUIET)
    try:
        client.start(timeout=15)
    finally:
        client.stop()
        client.close()


def session_password(session_id: int) -> bytes:
    """Return the bytes of `new java.util.Random(id ^ superSecret).nextBytes`.

    >>> session_password(0).hex()
    'f22acd4a97e69d6d20a49bb638eadb38'
    """
    state = (session_id ^ SUPER_SECRET ^ _MULTIPLIER) & ((1 << _BITS) - 1)
    password = b""
    while len(password) < _PASSWORD_BYTES:
        state = (state * _MULTIPLIER + _INCREMENT) & ((1 << _BITS) - 1)
        password += struct.pack("<I", state >> 16)
    return password
