"""How clients log in at brokers' listeners, compared with Surveyor's own."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from jobs.adapters.request_server.listen_config import CLIENT_AUTH, ENABLED_MECHANISMS, Security, listener_key
from jobs.core.errors import RefusedError
from schemas.broker_config_defaults import DEFAULTS
from schemas.broker_config_names import AUTHORIZER
from schemas.rows import BrokerConfig


def refuse_other_security(name: str, ours: Security, theirs: Mapping[int, Mapping[str, str | None]]) -> None:
    """Raise RefusedError if clients of a listener log in otherwise here than at brokers.

    A client that brokers refuse must not be served. A client that they accept must not be refused in the handshake of
    TLS, because that ends a producer or a consumer (`NetworkClient.handleServerDisconnect`). `theirs`: the settings of
    the brokers that report them, by broker and name.
    """
    if not theirs:
        raise RefusedError(
            f"--listen {name}://HOST:PORT: no broker reports how clients log in at its listener {name} "
            f"(DescribeConfigs), so it cannot be checked that only they are accepted here. Leave it out, or let "
            "Surveyor's user describe the brokers' settings"
        )
    for broker, values in sorted(theirs.items()):
        client_auth = _client_auth_of(name, ours, values)
        if ours.tls is not None and client_auth != ours.client_auth:
            raise RefusedError(
                f"broker {broker} has {CLIENT_AUTH}={client_auth} at its listener {name}, and the file of "
                f"--listen-config {ours.client_auth}: set {listener_key(name, CLIENT_AUTH)}={client_auth} there"
            )
        accepted = mechanisms_of(name, values)
        if unknown := [mechanism for mechanism in ours.mechanisms if mechanism not in accepted]:
            raise RefusedError(
                f"broker {broker} accepts {', '.join(accepted)} at its listener {name}, and the file of "
                f"--listen-config {unknown[0]}: leave {unknown[0]} out of {listener_key(name, ENABLED_MECHANISMS)}"
            )


def _client_auth_of(name: str, ours: Security, values: Mapping[str, str | None]) -> str:
    """Return `ssl.client.auth` of a listener. With SASL only the listener's own setting counts (KIP-684)."""
    common = None if ours.mechanisms else values.get(CLIENT_AUTH)
    return (values.get(listener_key(name, CLIENT_AUTH)) or common or "none").lower()


def mechanisms_of(name: str, values: Mapping[str, str | None]) -> list[str]:
    """Return the SASL mechanisms that a broker accepts at a listener, by its settings."""
    text = values.get(listener_key(name, ENABLED_MECHANISMS)) or values.get(ENABLED_MECHANISMS) or "GSSAPI"
    return [mechanism.strip() for mechanism in text.split(",") if mechanism.strip()]


def security_settings(name: str) -> list[str]:
    """Return the names of the brokers' settings for the login of clients at a listener."""
    keys = (CLIENT_AUTH, ENABLED_MECHANISMS)
    return [*keys, *(listener_key(name, key) for key in keys)]


def is_of_security(name: str) -> bool:
    """Return whether a setting of a broker is its authorizer, or determines how clients log in at some listener.

    >>> [is_of_security(name) for name in ("listener.name.clients.ssl.client.auth", "num.partitions")]
    [True, False]
    """
    return name == AUTHORIZER or name.endswith((CLIENT_AUTH, ENABLED_MECHANISMS))


def with_logins(listeners: Iterable[str]) -> dict[str, str | None]:
    """Return the settings to request of brokers, with those that say how clients log in at some listeners."""
    return {**DEFAULTS, **{setting: None for name in listeners for setting in security_settings(name)}}


def logins_of(name: str, configs: Iterable[BrokerConfig]) -> dict[int, dict[str, str | None]]:
    """Return the settings that define how clients log in at a listener, by broker.

    A broker that has reported none of them is left out. A setting that a broker does not have is missing.
    """
    settings, theirs = {*security_settings(name)}, defaultdict[int, dict[str, str | None]](dict)
    for row in configs:
        if row.name in settings and not row.assumed:
            theirs[row.broker_id][row.name] = row.value
    return theirs


def authorizer_of(configs: Iterable[BrokerConfig]) -> str | None:
    """Return the authorizer of the brokers, "" if the brokers with known settings have none, None if none are known.

    With an authorizer, relayed requests would be authorized by our address, and requests handled here not at all.
    """
    authorizers = {row.value or "" for row in configs if row.name == AUTHORIZER and not row.assumed}
    return max(authorizers, default=None)
