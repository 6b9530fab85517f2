"""Values of configs as Kafka parses them, in SQL.

Corresponds to `ConfigDef.parseType`: every value is trimmed of what Java takes for blanks, true and false are read
whatever their case. `schemas.topic_configs` has the same in plain Python; a test holds the two equal. In: an SQL
expression of type string. Out: an SQL expression, null where Kafka would not parse the value.
"""

from schemas.topic_configs import MIN_ISR, UNCLEAN_ELECTION


def trimmed(value: str) -> str:
    return rf"regexp_replace({value}, r'^[\x00-\x20]+|[\x00-\x20]+$', '')"


def boolean(value: str) -> str:
    return f"CASE lower({trimmed(value)}) WHEN 'true' THEN true WHEN 'false' THEN false END"


def whole_number(value: str) -> str:
    """A value of type INT."""
    return rf"try_cast(regexp_extract({trimmed(value)}, r'^[+-]?[0-9]+$', 0) AS int)"


MIN_ISR_OVERRIDE = whole_number(f"config['{MIN_ISR}']")
"""What a topic's config says of min.insync.replicas, null if nothing."""

UNCLEAN_OVERRIDE = f"""CASE
    WHEN config IS NULL THEN false
    WHEN map_contains_key(config, '{UNCLEAN_ELECTION}') THEN coalesce({boolean(f"config['{UNCLEAN_ELECTION}']")}, false)
END"""
"""Whether a topic's config allows unclean elections: null where it says nothing, false where that cannot be read."""
