"""Config values as Kafka parses them, in SQL.

Corresponds to `ConfigDef.parseType`: every value is trimmed as Java's `trim` does it, and booleans are not
case-sensitive. `schemas.topic_configs` is the same in plain Python; a test compares the two. In: an SQL expression of
type string. Out: an SQL expression, null for a value that Kafka would not parse.
"""

from schemas.topic_configs import MIN_ISR, UNCLEAN_ELECTION


def trimmed(value: str) -> str:
    return rf"regexp_replace({value}, r'^[\x00-\x20]+|[\x00-\x20]+$', '')"


def boolean(value: str) -> str:
    return f"CASE lower({trimmed(value)}) WHEN 'true' THEN true WHEN 'false' THEN false END"


def whole_number(value: str) -> str:
    """Return SQL that parses a value of type INT."""
    return rf"try_cast(regexp_extract({trimmed(value)}, r'^[+-]?[0-9]+$', 0) AS int)"


MIN_ISR_OVERRIDE = whole_number(f"config['{MIN_ISR}']")
"""The min.insync.replicas of a topic's config, null if it is not set."""

UNCLEAN_OVERRIDE = f"""CASE
    WHEN config IS NULL THEN false
    WHEN map_contains_key(config, '{UNCLEAN_ELECTION}') THEN coalesce({boolean(f"config['{UNCLEAN_ELECTION}']")}, false)
END"""
"""Whether a topic's config allows unclean elections: null if it is not set, false if it cannot be read."""
