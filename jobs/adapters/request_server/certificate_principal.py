"""The principal of a client certificate, as Kafka writes it.

Corresponds to `DefaultKafkaPrincipalBuilder`, which takes the subject as `X500Principal.getName()` formats it (RFC
2253): the last attribute first, commas between, special characters escaped.
"""

import re
from collections.abc import Sequence
from typing import Final

ANONYMOUS: Final = "User:ANONYMOUS"

Subject = Sequence[Sequence[tuple[str, str]]]
"""`subject` of `ssl.SSLSocket.getpeercert`: relative distinguished names of (attribute, value)."""

_KEYWORDS: Final = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""Keywords of RFC 2253; Java writes other attributes by number, which Python does not return."""

_SPECIAL: Final = re.compile(r'([,+"\\<>;])')


def certificate_principal(subject: Subject) -> str:
    """Return the principal of a certificate's subject.

    >>> certificate_principal(((("organizationName", "Example"),), (("commonName", "broker 1"),)))
    'User:CN=broker 1,O=Example'
    """
    names = ["+".join(f"{_KEYWORDS.get(key, key)}={_escaped(value)}" for key, value in name) for name in subject]
    return f"User:{','.join(reversed(names))}"


def _escaped(value: str) -> str:
    escaped = _SPECIAL.sub(r"\\\1", value)
    if escaped.startswith(("#", " ")):
        escaped = f"\\{escaped}"
    return f"{escaped[:-1]}\\ " if escaped.endswith(" ") and len(escaped) > 1 else escaped
