"""kio's codecs of Kafka's protocol, imported as if Hypothesis were not installed.

kio imports Hypothesis and registers its types there, which slows each start down, takes 20 MB, and creates a folder
`.hypothesis` in the working directory. Every other module takes kio's names from here.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = [
    "EntityType",
    "ErrorCode",
    "SaslHandshakeResponse",
    "api_key_map",
    "entity_reader",
    "entity_writer",
    "i32Timedelta",
    "schema_name_map",
]


@contextmanager
def _hidden(package: str) -> Iterator[None]:
    """Import as if a package were not installed."""
    former = sys.modules.get(package)
    sys.modules[package] = None  # type: ignore[assignment] # makes `import` fail
    try:
        yield
    finally:
        del sys.modules[package]
        if former is not None:
            sys.modules[package] = former


with _hidden("hypothesis"):
    from kio.schema.errors import ErrorCode
    from kio.schema.index import api_key_map, schema_name_map
    from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse
    from kio.serial import entity_reader, entity_writer
    from kio.static.constants import EntityType
    from kio.static.primitive import i32Timedelta
