"""Each package of the source says in its docstring what it holds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]


def _packages() -> Iterator[Path]:
    for top in ("jobs", "planner", "schemas"):
        yield ROOT / top
        yield from (folder for folder in (ROOT / top).rglob("*") if folder.is_dir() and folder.name != "__pycache__")


@pytest.mark.parametrize("package", list(_packages()), ids=lambda package: str(package.relative_to(ROOT)))
def test_a_package_says_what_it_holds(package: Path) -> None:
    modules = [path for path in package.glob("*.py") if path.name != "__init__.py"]

    assert not modules or (package / "__init__.py").read_text().startswith('"""')
