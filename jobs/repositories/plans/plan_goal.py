"""The goal of a plan: its command without the options of a single run."""

import shlex
from typing import Final


def goal_of(command: str | None) -> list[str]:
    """Return the words of a plan's command without the options that do not change what is planned.

    >>> goal_of("surveyor plan reassign --remove-brokers 3 --throttle 5MB --name x")
    ['plan', 'reassign', '--remove-brokers', '3']
    """
    words = shlex.split(command or "")[1:]
    for option, values in _OPTIONS_OF_ONE_RUN.items():
        if option in words:
            del words[words.index(option) : words.index(option) + 1 + values]
    return words


def reads_file(command: str | None) -> bool:
    """Return whether a file is part of a plan's goal, which may have other content by now."""
    return any(word.endswith("-file") or word == "--sizes" for word in goal_of(command))


_OPTIONS_OF_ONE_RUN: Final = {
    "--name": 1,
    "--snapshot": 1,
    "--throttle": 1,
    "--replace-name": 0,
    "--refresh": 0,
    "--no-refresh": 0,
    "--detailed-exitcode": 0,
}
"""The number of values of each option that does not change what is planned."""
