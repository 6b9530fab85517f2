"""The tables plans and commits have one writer each; of the latter, the resident controller appends its buffer."""

import re
from pathlib import Path
from typing import Final

JOBS: Final = Path(__file__).parents[4] / "jobs"
WRITE: Final = re.compile(
    r"\.(append|append_all|insert|replace\w*|update|transform_rows|delete)\(\s*\"(plans|changes|commits)\""
)


def test_only_repositories_write_plans_and_commits() -> None:
    written = {
        (match[2], file.relative_to(JOBS).as_posix())
        for file in JOBS.rglob("*.py")
        for match in WRITE.finditer(file.read_text())
    }
    folder = "repositories/plans"
    assert written == {("commits", f"{folder}/commit_rows.py"), ("plans", f"{folder}/plans_writer.py")}
