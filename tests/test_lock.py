"""`constraints.txt` is what was tested: a version of each package, allowed by pyproject.toml, and installed here."""

import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
AIRFLOW = (ROOT / "airflow" / "requirements.txt").read_text().splitlines()

ASKED_FOR = [
    *PROJECT["project"]["dependencies"],
    *(line for lines in PROJECT["project"]["optional-dependencies"].values() for line in lines),
    *(line for lines in PROJECT["dependency-groups"].values() for line in lines),
]


def pinned(file: str) -> dict[str, str]:
    """The version of each package, by its name as indexes write it."""
    pins = (line.split("==") for line in (ROOT / file).read_text().splitlines())
    return {canonicalize_name(name): pin for name, pin in pins}


@pytest.mark.parametrize(
    ("file", "lines"), [("constraints.txt", ASKED_FOR), ("airflow/constraints.txt", AIRFLOW)], ids=["here", "airflow"]
)
def test_what_is_asked_for_allows_what_was_tested(file: str, lines: list[str]) -> None:
    pins = pinned(file)
    requirements = [Requirement(line) for line in lines]
    outside = {
        f"{requirement}, not {pins.get(canonicalize_name(requirement.name))}"
        for requirement in requirements
        if not requirement.specifier.contains(pins.get(canonicalize_name(requirement.name), "0"))
    }
    assert outside == set()


def test_what_was_tested_is_what_is_installed() -> None:
    """Another Python may need fewer packages than that on which the list was made."""
    pins = pinned("constraints.txt")
    installed = {str(canonicalize_name(distribution.name)): distribution.version for distribution in distributions()}
    assert installed.keys() >= {"pyspark", "deltalake", "kazoo", "kio"}
    assert {name: installed.get(name, pin) for name, pin in pins.items()} == pins
