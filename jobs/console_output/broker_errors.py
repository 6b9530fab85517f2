"""The errors of brokers' responses to control requests, as lines for people."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from jobs.adapters.brokers.admin import error_name
from jobs.adapters.brokers.responses import BrokerResponse, BrokerResponses
from schemas.notices import UPDATE_METADATA
from schemas.text import join_ids, pluralise

MAX_ERROR_LINES: Final = 5
"""Maximum number of lines for errors."""

_EXAMPLES: Final = 3


def broker_error_lines(responses: BrokerResponses) -> list[str]:
    """Return one line for each kind of error."""
    groups: dict[tuple[str, int], list[tuple[int, str | None]]] = defaultdict(list)
    for response, errors in zip(responses.responses, responses.errors, strict=True):
        if response.data is not None:
            for name, error in zip(_names(response), errors, strict=True):
                if not response.meaning(error).is_delivered:
                    groups[response.api, error].append((response.broker_id, name))
    lines = [_line(api, error, rows) for (api, error), rows in groups.items()]
    more = f"{len(lines) - MAX_ERROR_LINES + 1} more kinds of error: table `answers`"
    return lines if len(lines) <= MAX_ERROR_LINES else [*lines[: MAX_ERROR_LINES - 1], more]


def _names(response: BrokerResponse) -> Iterator[str | None]:
    if response.api == UPDATE_METADATA:
        return iter([None])
    return (f"{notice.topic}-{notice.partition}" for notice in response.notices)


def _line(api: str, error: int, rows: Sequence[tuple[int, str | None]]) -> str:
    brokers = join_ids(sorted({broker for broker, _ in rows}))
    names = list(dict.fromkeys(name for _, name in rows if name is not None))
    shown = ", ".join(names[:_EXAMPLES]) + ", ..." * (len(names) > _EXAMPLES)
    about = f" for {pluralise(len(names), 'partition')} ({shown})"
    return f"brokers {brokers} answered {api} with {error_name(error)}{about if names else ''}"
