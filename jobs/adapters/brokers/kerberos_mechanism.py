"""Kerberos for kafka-python: its mechanism GSSAPI, replaced by one with a separate keytab.

kafka-python takes tickets from the default cache only, which would need kinit and one principal for all clusters.
"""

from typing import Any, Final

from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.abc import SaslMechanism

from jobs.adapters.kerberos.gssapi_exchange import GssapiExchange
from jobs.adapters.kerberos.login import GSSAPI, KerberosLogin

LOGIN: Final = "sasl_kerberos_name"
"""kafka-python's setting of an object for its mechanism, here a KerberosLogin."""


class BrokerGssapi(SaslMechanism):  # type: ignore[misc] # kafka-python is untyped
    """One authentication at the broker on `host`; errors are KerberosError."""

    def __init__(self, **config: Any) -> None:  # noqa: ANN401 - kafka-python's settings
        login: KerberosLogin = config[LOGIN]
        self._principal = login.principal
        self._exchange = GssapiExchange(login, config["host"])
        self._token = self._exchange.step(None)
        self._done = False

    def auth_bytes(self) -> bytes:
        return self._token

    def receive(self, auth_bytes: bytes) -> None:
        if not self._exchange.complete:
            self._token = self._exchange.step(auth_bytes)
        elif auth_bytes:
            raise ValueError("a message after the end of the authentication")
        else:
            self._done = True

    def is_done(self) -> bool:
        return self._done

    def is_authenticated(self) -> bool:
        return self._done

    def auth_details(self) -> str:
        return f"Authenticated as {self._principal} via SASL / GSSAPI"


register_sasl_mechanism(GSSAPI, BrokerGssapi, overwrite=True)
