"""Kafka's unsecured tokens: JWTs without a signature, which a broker accepts without an identity provider."""

import json
import time
from base64 import urlsafe_b64encode


def unsecured_token(user: str, *, lifetime: float = 3600.0, at: float | None = None) -> str:
    """A token for `user`, issued `at` (seconds since the epoch; now) and valid for `lifetime` seconds."""
    issued = time.time() if at is None else at
    claims = {"sub": user, "iat": issued, "exp": issued + lifetime}
    return f"{_part({'alg': 'none'})}.{_part(claims)}."


def _part(content: dict[str, object]) -> str:
    return urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")
