"""Commands as the pages show them, to be run: the lines of a section, and a folder that has what these name."""

import re
import shutil
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[4]


def shown(page: str, heading: str) -> list[str]:
    """Return the commands of a page's section, one a line."""
    (section,) = re.findall(rf"^#+ {heading}\n(.*?)(?=^#|\Z)", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    return "\n".join(re.findall(r"^    (.*)$", section, re.MULTILINE)).replace("\\\n", "").splitlines()


def said_here(line: str, substitutions: dict[str, str]) -> str:
    """Put what is here in place of what the page says, as far as the line says it."""
    for words, instead in substitutions.items():
        line = line.replace(words, instead)
    return line


def deployed(folder: Path, distribution: Path) -> Path:
    """Make a folder that has what the lines name and no more: environment, settings, `make dist`'s zip, scripts."""
    (folder / "dist").mkdir(parents=True)
    shutil.copy(distribution, folder / "dist")
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "conf").symlink_to(ROOT / "conf")
    (folder / "jobs").mkdir()
    for script in ("snapshot.py", "plan.py"):
        shutil.copy(ROOT / "jobs" / script, folder / "jobs")
    return folder
