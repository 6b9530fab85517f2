"""Documentation pages that show commands and their output: the commands are run again and the output is compared.

After `$` the whole output is compared; below a command without it, only comments. Values that differ between runs are
ignored: plan ids, snapshot ids, times, ports, sizes, and the controller's id.
"""

import re
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Final

CODE: Final = "    "
PROMPT: Final = "    $ "
REMARK: Final = "    # "
"""How a line of an answer begins where commands stand without a prompt."""

TYPED: Final = ("    surveyor ", "    unset SURVEYOR_")
"""How a command begins that stands without a prompt."""

HEADING: Final = "## "
CUT: Final = " ..."
"""How a page ends a line that it shortens."""

WIDEST: Final = 116
"""Columns that a page has for an answer."""

VARYING: Final = (
    (r"\b[0-9a-f]{16}\b", "PLAN"),
    (r"\d{4}-\d\d-\d\d", "DAY"),
    (r"\d\d:\d\d:\d\d", "CLOCK"),
    (r"\b[\d.]+ [kKMGT]?i?B\b", "BYTES"),
    (r"\b[\d.]+ (ms|s|min)\b( \(read.*)?", "TIME"),
    (r"\bepoch \d+", "epoch N"),
    (r"\bsnapshot +\d+", "snapshot N"),
    (r"\b(controller +(?:broker )?)\d+", r"\1N"),
    (r"\bbroker \d+ is the controller", "broker N is the controller"),
    (r":\d{4,5}\b", ":PORT"),
    (r"[\u2500-\u257f]+", " "),
    (r"\s+", " "),
)
"""What differs from run to run, in lines as normalised, and what stands for it."""

Answering = Callable[[str, str, bool], list[str]]
"""What runs a command, given the heading that it stands below, and whether the page shows what it answers."""


def rewritten(page: str, answering: Answering) -> str:
    """Run every command of a page; return it with what they answer, where that is not what it shows."""
    heading = ""
    lines = page.splitlines()
    written = []
    while lines:
        line = lines.pop(0)
        written.append(line)
        if line.startswith(HEADING):
            heading = line.removeprefix(HEADING)
        if line.startswith((PROMPT, *TYPED)):
            begin = CODE if line.startswith(PROMPT) else REMARK
            shown = _answer(lines) if begin == CODE else _remarks(lines)
            del lines[: len(shown)]
            kept = begin == REMARK and not shown
            answered = answering(heading, line.removeprefix(PROMPT).strip(), not kept)
            written += (
                shown
                if kept or agree([line.removeprefix(begin) for line in shown], answered)
                else (_indented(line, begin) for line in answered)
            )
    return "\n".join(written) + "\n"


def _remarks(lines: Sequence[str]) -> list[str]:
    return [*takewhile(lambda line: line.startswith(REMARK), lines)]


def _answer(lines: Sequence[str]) -> list[str]:
    """What stands below a command, up to the next one or to what is no code; an empty line may be part of it."""
    block = [*takewhile(lambda line: not line.startswith(PROMPT) and (not line or line.startswith("    ")), lines)]
    while block and not block[-1]:
        block.pop()
    return block


def agree(shown: Sequence[str], answered: Sequence[str]) -> bool:
    """Tell whether an answer is the one shown; the page may shorten a line at its end, and lines to `...`.

    >>> answer = ["  plan 84a1ff5e071acbe6:   2 changes", "orders-0", "orders-1", "took 2.1 s"]
    >>> agree(["    plan 10c1d15e071acbe6: 2 ...", "    ...", "    took 4.9 s"], answer)
    True
    >>> agree(["    plan 10c1d15e071acbe6: 3 ...", "    ...", "    took 4.9 s"], answer)
    False
    """
    pattern = "".join(_pattern(normalised(line)) for line in shown)
    return re.fullmatch(pattern, "".join(f"{normalised(line)}\n" for line in answered)) is not None


def _pattern(line: str) -> str:
    if line == CUT.strip():
        return "(.*\n)*"
    return re.escape(line.removesuffix(CUT)) + (".*\n" if line.endswith(CUT) else "\n")


def normalised(line: str) -> str:
    """Leave out what varies."""
    for pattern, instead in VARYING:
        line = re.sub(pattern, instead, line)
    return line.strip()


def _indented(line: str, begin: str = CODE) -> str:
    """Write a line of an answer as the page has it.

    >>> _indented("a " * 60)[-7:], _indented("")
    ('a a ...', '')
    """
    line = f"{begin}{line}".rstrip()
    return line if len(line) <= WIDEST else line[: WIDEST - len(CUT) + 1].rpartition(" ")[0] + CUT
