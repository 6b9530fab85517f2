"""Kerberos for kazoo: puresasl's mechanism GSSAPI, replaced by one with a separate keytab.

puresasl's own one needs a C extension that is no longer maintained. Importing this module registers the mechanism.
"""

from puresasl import mechanisms
from puresasl.client import SASLClient

from jobs.adapters.kerberos.gssapi_exchange import GssapiExchange
from jobs.adapters.kerberos.login import GSSAPI, KerberosLogin


class ZooKeeperGssapi(mechanisms.Mechanism):  # type: ignore[misc] # puresasl is untyped
    """One authentication; kazoo reports its errors as AuthFailedError, and the login keeps their reason."""

    name = GSSAPI

    def __init__(self, sasl: SASLClient, login: KerberosLogin) -> None:
        super().__init__(sasl)
        self._exchange = GssapiExchange(login, sasl.host)

    def process(self, challenge: bytes | None = None) -> bytes:
        response = self._exchange.step(challenge)
        self.complete = self._exchange.complete
        return response

    def dispose(self) -> None:
        """Do nothing: the context has no password."""


mechanisms.mechanisms[GSSAPI] = ZooKeeperGssapi
