"""The house rules that no linter knows: how full a room may be, and how small or large a file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
MOST_FILES: Final = 15
MOST_COMMANDS: Final = 24
"""Files of `jobs` itself: one a command, whose name is the command's, so that nobody has to look for it."""
LEAST_LINES, MOST_LINES = 40, 400

FEW_LINES: Final = {
    "jobs/adapters/brokers/kio_alone.py": "a trick that has to come before three modules import kio",
    "jobs/adapters/embedded/tether.py": "run as a program of its own, by a Python that has no path",
}
"""Files that are smaller, and why."""

CROWDED: Final = {
    "tests/jobs/torture": (18, "the steps and checks of one long story, and what they share"),
}
"""Rooms of tests that hold more than others may, how many files, and why."""

LONG: Final = {
    "tests/jobs/adapters/zookeeper/test_topics.py": 484,
    "tests/jobs/execution/admin/test_reassign_run.py": 477,
    "tests/jobs/survey/test_vacuum.py": 443,
    "tests/jobs/execution/test_cancel.py": 436,
}
"""Files of tests that are longer than others may be: to be parted, not to grow."""


def _rooms() -> Iterator[Path]:
    for top in ("jobs", "planner", "schemas"):
        yield ROOT / top
        yield from (folder for folder in (ROOT / top).rglob("*") if folder.is_dir() and folder.name != "__pycache__")


ROOMS: Final = list(_rooms())
TESTS: Final = [ROOT / "tests", *(folder for folder in (ROOT / "tests").rglob("*") if folder.is_dir())]


def modules(room: Path) -> list[Path]:
    return [path for path in room.glob("*.py") if path.name != "__init__.py"]


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(ROOT)))
def test_a_room_is_not_crowded(room: Path) -> None:
    assert len(modules(room)) <= (MOST_COMMANDS if room == ROOT / "jobs" else MOST_FILES)


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(ROOT)))
def test_a_file_is_a_subject(room: Path) -> None:
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in modules(room)}
    is_command = room == ROOT / "jobs"
    least = 1 if is_command else LEAST_LINES
    odd = {path: count for path, count in lines.items() if not least <= count <= MOST_LINES and path not in FEW_LINES}

    assert odd == {}


def test_rooms_of_tests_are_not_crowded_either() -> None:
    files = {str(room.relative_to(ROOT)): len(modules(room)) for room in TESTS}
    most = dict.fromkeys(files, MOST_FILES) | {room: count for room, (count, _) in CROWDED.items()}

    assert {room: count for room, count in files.items() if count > most[room]} == {}


def test_files_of_tests_are_not_too_long() -> None:
    files = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in (ROOT / "tests").rglob("*.py")}

    assert {path: count for path, count in files.items() if count > LONG.get(path, MOST_LINES)} == {}


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(ROOT)))
def test_a_room_says_what_it_holds(room: Path) -> None:
    assert not modules(room) or (room / "__init__.py").read_text().startswith('"""')
