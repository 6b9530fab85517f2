"""--throttle without a unit, or with one that is too small, is warned of by every command that takes it."""

import pytest

from jobs.core.errors import UsageError
from jobs.runtime.options import check_throttle

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("throttle", "warning"),
    [
        ("50", "--throttle 50 is 50 bytes a second, at which a gigabyte takes 231 days; 50MB/s is 50 million"),
        ("999B/s", "--throttle 999B/s is 999 bytes a second, at which a gigabyte takes 12 days"),
        ("1000", ""),
        ("50MB/s", ""),
        ("none", ""),
        (None, ""),
    ],
)
def test_a_rate_below_a_kilobyte_is_warned_of(
    capsys: pytest.CaptureFixture[str], throttle: str | None, warning: str
) -> None:
    check_throttle(throttle)
    said = capsys.readouterr().err
    assert (said.startswith(f"surveyor: warning: {warning}"), bool(said)) == (bool(warning), bool(warning))


@pytest.mark.parametrize(
    ("typed", "warning"),
    [
        (
            None,
            "surveyor: warning: throttle in [clusters.NAME] of the file of --conf (SURVEYOR_CONF), 50 is 50",
        ),
        ("50MB/s", ""),
    ],
)
def test_a_slow_rate_of_the_configuration_file_is_warned_of(
    capsys: pytest.CaptureFixture[str], typed: str | None, warning: str
) -> None:
    check_throttle(typed, "50")
    shown = capsys.readouterr().err
    assert (shown.startswith(warning), bool(shown)) == (True, bool(warning))


def test_what_is_no_rate_is_refused() -> None:
    with pytest.raises(UsageError, match="--throttle 'fast' is no rate"):
        check_throttle("fast")
