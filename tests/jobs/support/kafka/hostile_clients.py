"""Hostile clients of `surveyor control --listen`, from addresses of their own: its limits are by address."""

import random
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from struct import pack
from threading import Event, Thread
from typing import Final

from jobs.core.addresses import LOOPBACK
from tests.jobs.support.kafka.asked_cluster import AskedCluster

ALTER_PARTITION: Final = 56
CONNECTIONS: Final = 1500
"""Connections of one client, more than an address may have."""

PAUSE_SECONDS: Final = 0.05


def framed(data: bytes) -> bytes:
    return pack(">i", len(data)) + data


def empty_topics(count: int) -> bytes:
    """An AlterPartition request with topics of four bytes, which take long to decode; its broker epoch is forged."""
    compact = b""
    number = count + 1
    while number > 0x7F:
        compact, number = compact + bytes([number & 0x7F | 0x80]), number >> 7
    body = pack(">iq", 0, 5) + compact + bytes([number]) + b"\x02a\x01\x00" * count + b"\0"
    return framed(pack(">hhih", ALTER_PARTITION, 1, 7, 1) + b"x\0" + body)


@contextmanager
def hostile_clients(port: int) -> Iterator[None]:
    """Run them all within the block."""
    over, large, small = Event(), empty_topics(1_000_000), empty_topics(15_000)
    source = random.Random(7)  # noqa: S311 - no secret
    clients: list[tuple[Callable[..., None], int, tuple[object, ...]]] = [
        (_send_for_ever, 2, (lambda: large,)),
        (_send_for_ever, 10, (lambda: small,)),
        (_send_for_ever, 4, (lambda: framed(source.randbytes(source.randint(1, 3000))),)),
        (_send_for_ever, 2, (lambda: pack(">i", 2**31 - 1),)),
        (_hold_halves, 1, (framed(b"half of a request")[:8],)),
        (_hold_halves, 1, (large[:64],)),
    ]
    threads = [
        Thread(target=run, args=(over, port, f"127.0.1.{number}", *arguments))
        for number, (run, count, arguments) in enumerate(clients, start=1)
        for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _send_for_ever(over: Event, port: int, address: str, make: Callable[[], bytes]) -> None:
    while not over.wait(PAUSE_SECONDS):
        with suppress(OSError), socket.create_connection((LOOPBACK, port), 5, (address, 0)) as client:
            while not over.wait(PAUSE_SECONDS):
                client.sendall(make())
                if not client.recv(65536):
                    break


def _hold_halves(over: Event, port: int, address: str, half: bytes) -> None:
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            with suppress(OSError):
                client = stack.enter_context(socket.create_connection((LOOPBACK, port), 5, (address, 0)))
                client.sendall(half)
            if over.is_set():
                return
        over.wait()


def listener_port(story: AskedCluster) -> int:
    """The port for brokers."""
    arguments = story.controller.process.args
    assert isinstance(arguments, list)
    return int(arguments[arguments.index("--listen") + 1].rpartition(":")[2])


def megabytes(pid: int) -> int:
    """The largest memory of a process until now."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) // 1024
