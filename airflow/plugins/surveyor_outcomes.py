"""What the exit codes of Surveyor mean to a task: go on, try again, skip what follows, or fail at once.

Every command may be run again at any point: one that was fenced, interrupted, killed or could not read anything goes
on from where it was, so the rule is to try again. It is not worth it where the same command must fail the same way.
"""

from typing import Any, NoReturn

from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

DONE = 0
USAGE = 2
CHANGES = 10
STALE = 21
UNREADABLE = 22
REFUSED = 23
MISSING = 24

HOPELESS = {
    USAGE: "the command line, a file or a name is not what it should be",
    MISSING: "Java, jars or a program are missing on the worker",
}
"""Trying again would fail the same way, until somebody changes something."""


def raise_for(code: int, result: dict[str, Any], *, stale: str = "fail", refused: str = "retry") -> NoReturn:
    """Raise what Airflow makes of an exit code that is not 0; `result` is the object of --result-file.

    `stale`, where what a plan counted on is gone: "skip" if the next snapshot brings the next plan by itself, "fail"
    if somebody has to ask anew. `refused`: "retry" where another commit may have the lease, "fail" where a plan is
    refused, which it would be again.
    """
    why = result.get("error") or "see the log, and the codes in Surveyor's docs/exit-codes.md"
    message = f"exit code {code}: {why}" if code >= 0 else f"killed by signal {-code}"
    if code == STALE and stale == "skip":
        raise AirflowSkipException(f"{message}; the next snapshot is planned anew")
    if code in HOPELESS:
        raise AirflowFailException(f"{message} ({HOPELESS[code]})")
    if code == STALE or (code == REFUSED and refused == "fail"):
        raise AirflowFailException(message)
    raise AirflowException(message)
