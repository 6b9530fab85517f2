"""The client's half of SASL's GSSAPI mechanism (RFC 4752), without integrity or confidentiality layers.

Corresponds to Java's `GssKrb5Client`. The service must authenticate itself, too.
"""

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from jobs.adapters.kerberos.login import KerberosError, KerberosLogin

if TYPE_CHECKING:
    import gssapi

NO_LAYER: Final = 1
"""The bit of the security layer "none", the only one that Kafka and ZooKeeper use."""

_OFFER_BYTES: Final = 4
"""Length of the service's offer: a byte of layers, and three of the size of its buffer."""


class _Stage(Enum):
    CONTEXT = auto()
    """Tokens of the security context are exchanged."""
    OFFER = auto()
    """The service is to offer its security layers."""
    COMPLETE = auto()


class GssapiExchange:
    """The messages of one authentication; `complete` once `step` has returned the last one, which the caller sends."""

    def __init__(self, login: KerberosLogin, host: str) -> None:
        self._login, self._host = login, host
        self._stage = _Stage.CONTEXT
        self._context: gssapi.SecurityContext | None = None

    @property
    def complete(self) -> bool:
        return self._stage is _Stage.COMPLETE

    def step(self, challenge: bytes | None) -> bytes:
        """Return the response to a challenge, None at first; raise KerberosError if the exchange fails."""
        import gssapi  # noqa: PLC0415 - an extra

        try:
            if self._context is None:
                self._context = self._login.context(self._host)
            if self._stage is _Stage.OFFER:
                return self._accept(self._context, challenge or b"")
            token = self._context.step(challenge or None)
            if self._context.complete:
                self._stage = _Stage.OFFER
        except gssapi.raw.misc.GSSError as error:
            raise self._login.error(error, self._host) from None
        return token or b""

    def _accept(self, context: "gssapi.SecurityContext", wrapped: bytes) -> bytes:
        """Choose no security layer; without an authorization id the service takes the ticket's id."""
        offer = context.unwrap(wrapped).message
        if len(offer) != _OFFER_BYTES or not offer[0] & NO_LAYER:
            raise KerberosError(f"{self._host} requires a security layer, which Kafka and ZooKeeper do not support")
        answer: bytes = context.wrap(bytes([NO_LAYER, 0, 0, 0]), encrypt=False).message
        self._stage = _Stage.COMPLETE
        self._login.succeeded(self._host)
        return answer
