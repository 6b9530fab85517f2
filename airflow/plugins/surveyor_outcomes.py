"""How a task handles the exit codes of Surveyor: succeed, retry, skip the following tasks, or fail at once.

Every command can be run again at any point. After it was fenced, interrupted or killed, or could not read something, it
continues where it stopped, so the default is to retry. A task is not retried if the same command would fail again.
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

NOT_RETRIABLE = {
    USAGE: "the command line, a file or a name is invalid",
    MISSING: "Java, jars or a program are missing on the worker",
}
"""Exit codes that a retry cannot change, with an explanation."""


def raise_for(code: int, result: dict[str, Any], *, stale: str = "fail", refused: str = "retry") -> NoReturn:
    """Raise the Airflow exception for an exit code other than 0; `result` is the object of --result-file.

    `stale` applies if the preconditions of a plan no longer hold: "skip" if the next snapshot triggers the next
    plan, "fail" if a person must start a new run. `refused` is "retry" if another commit may hold the lease, and
    "fail" if a plan was refused, which a retry would not change.
    """
    reason = result.get("error") or "see the log, and the exit codes in Surveyor's docs/exit-codes.md"
    message = f"exit code {code}: {reason}" if code >= 0 else f"killed by signal {-code}"
    if code == STALE and stale == "skip":
        raise AirflowSkipException(f"{message}; the next snapshot triggers a new plan")
    if code in NOT_RETRIABLE:
        raise AirflowFailException(f"{message} ({NOT_RETRIABLE[code]})")
    if code == STALE or (code == REFUSED and refused == "fail"):
        raise AirflowFailException(message)
    raise AirflowException(message)
