"""What dies in the tests of this room."""

from collections.abc import Iterator

import pytest

from tests.jobs.execution.killed.lives import Dying, dying


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dying]:
    with dying(tmp_path_factory.mktemp("mortal")) as running:
        yield running
