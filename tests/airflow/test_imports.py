"""What `airflow/` may import: Airflow and itself. It speaks to the rest by commands, whose exit codes it repeats."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from jobs.core.errors import ExitCode

AIRFLOW: Final = Path(__file__).parents[2] / "airflow"
FILES: Final = sorted(AIRFLOW.rglob("*.py"))
OWN: Final = {path.stem for path in (AIRFLOW / "plugins").glob("*.py")}


def imported(tree: ast.Module) -> Iterator[str]:
    """Yield the top-level packages that a module imports."""
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        yield from (name.partition(".")[0] for name in names)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_airflow_and_itself_alone(file: Path) -> None:
    others = set(imported(ast.parse(file.read_text()))) - sys.stdlib_module_names - OWN
    assert others <= {"airflow"}


def test_no_package_hides_airflow() -> None:
    assert list(AIRFLOW.rglob("__init__.py")) == []


def test_exit_codes_are_surveyors() -> None:
    tree = ast.parse((AIRFLOW / "plugins" / "surveyor_outcomes.py").read_text())
    named = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert named == {name: code.value for name, code in ExitCode.__members__.items() if name in named} != {}
