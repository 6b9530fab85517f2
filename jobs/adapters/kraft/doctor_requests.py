"""Requests of `surveyor doctor` to the brokers of a KRaft cluster: which addresses answer, and what brokers support."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafka.protocol.admin import DescribeTopicPartitionsRequest
from kafka.protocol.metadata import ApiVersionsRequest

from jobs.adapters.brokers.fanout import Ask, ask_brokers
from jobs.adapters.kraft.cluster import METADATA_VERSION
from schemas.rows import Broker
from schemas.znode_codecs import Endpoint

_WITH_FEATURES: Final = 3
"""First version of ApiVersions that reports features (Kafka 2.7)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportedVersions:
    """API versions and features that a broker supports, as ApiVersions reports them."""

    metadata_version: int | None
    """The highest level of metadata.version, None if it reports none."""
    has_pages: bool
    """Whether it answers DescribeTopicPartitions, which reports eligible leader replicas (Kafka 3.8)."""


def probe_addresses(
    addresses: Sequence[str], settings: dict[str, str], seconds: float
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the seconds that each address took to answer a first request, and why others did not answer."""
    protocol = settings.get("security_protocol", "PLAINTEXT")
    brokers = [
        Broker(broker_id=number, endpoints=[_endpoint(address, protocol)], understood=True)
        for number, address in enumerate(addresses)
    ]
    started = time.monotonic()

    def answer(ask: Ask, _: Broker) -> float:
        ask(_api_versions())
        return time.monotonic() - started

    answers, faults = ask_brokers(brokers, settings, seconds, answer)
    return (
        {addresses[number]: took for number, took in answers.items()},
        {addresses[number]: fault for number, fault in faults.items()},
    )


def read_supported_versions(
    brokers: Sequence[Broker], settings: dict[str, str], seconds: float
) -> tuple[dict[int, SupportedVersions], dict[int, str]]:
    """Ask each broker; return what it supports, and why others did not answer, by broker id."""
    return ask_brokers(brokers, settings, seconds, _supported)


def _supported(ask: Ask, _: Broker) -> SupportedVersions:
    response: Any = ask(_api_versions())
    levels = [int(row.max_version) for row in response.supported_features or [] if row.name == METADATA_VERSION]
    apis = {int(api.api_key) for api in response.api_keys}
    return SupportedVersions(
        metadata_version=max(levels, default=None), has_pages=DescribeTopicPartitionsRequest.API_KEY in apis
    )


def _api_versions() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="surveyor", client_software_version="1", min_version=_WITH_FEATURES)


def _endpoint(address: str, protocol: str) -> Endpoint:
    host, _, port = address.rpartition(":")
    return Endpoint(None, protocol, host, int(port))
