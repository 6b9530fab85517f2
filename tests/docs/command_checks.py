"""Command lines that the pages show, and what the real command line has against them. Nothing is run."""

import re
import shlex
from collections.abc import Iterator
from typing import Final

from tests.docs.command_line import NAME, commands, is_group, root, subcommands
from tests.docs.markdown import code_blocks

SHELL: Final = {"|", "||", "&&", ";", ">", ">>", "2>", "<", "&"}
"""Where a command line ends and the shell's business begins."""


def command_lines(text: str) -> Iterator[list[str]]:
    r"""Yield the arguments of each `surveyor ...` in the blocks of code.

    >>> list(command_lines("    $ surveyor show plan p | less   # look\n    surveyor sizes \\\n        --json"))
    [['show', 'plan', 'p'], ['sizes', '--json']]
    """
    for block in code_blocks(text):
        for line in block.replace("\\\n", " ").splitlines():
            words = _words(line)
            if words[:1] == [NAME]:
                yield words[1:]


def _words(line: str) -> list[str]:
    """Split a line as a shell would, up to the end of its first command; the prompt is none of it."""
    if not re.match(rf"\s*(\$ )?{NAME}\b", line):
        return []
    lexer = shlex.shlex(line.strip().removeprefix("$ "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    end = next((number for number, word in enumerate(words) if word in SHELL), len(words))
    return words[:end]


def fault(arguments: list[str]) -> str | None:
    """Say what the command line has against these arguments, None where it takes them."""
    command, title = root(), NAME
    rest = list(arguments)
    while is_group(command):
        if not rest:
            return f"{title}: which command?"
        word, *rest = rest
        command, title = dict(subcommands(command)).get(word), f"{title} {word}"
    if command is None:
        return f"{title}: there is no such command"
    try:
        command.make_context(title, rest)
    except Exception as error:  # noqa: BLE001 - a usage error of whichever click typer brings
        return f"{title}: {getattr(error, 'message', None) or error}"
    return None


def options() -> set[str]:
    """Return every option of every command, as it is written."""
    return {
        name
        for member in commands(root())
        for param in member.command.params
        for name in (*param.opts, *param.secondary_opts)
    }
