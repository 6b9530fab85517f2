"""What --out and --result-file name: written whole, refused before anything is read, never put in a device's place."""

import os
from pathlib import Path
from threading import Thread

import pytest

from jobs.core.errors import SurveyorError, UsageError
from jobs.runtime.atomic_files import refuse_unwritable, replace_file
from tests.jobs.support.commands.commands import Surveyor


def test_a_file_is_what_it_was_until_it_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        assert out.read_text() == "old"
        raise OSError(28, "No space left on device")

    out = tmp_path / "x.prom"
    out.write_text("old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(SurveyorError, match="No space left on device"):
        replace_file(out, "new")

    assert ([path.name for path in tmp_path.iterdir()], out.read_text()) == (["x.prom"], "old")


def test_a_pipe_stays_one(tmp_path: Path) -> None:
    """So does a device: root would otherwise replace /dev/null for all processes."""
    pipe, read = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    replace_file(pipe, "new")
    reader.join(10)

    assert (read, pipe.is_fifo(), [*tmp_path.iterdir()]) == (["new"], True, [pipe])


def test_a_link_leads_to_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    replace_file(tmp_path / "link", "new")

    assert ((tmp_path / "link").is_symlink(), (tmp_path / "file").read_text()) == (True, "new")


def test_the_longest_file_name_is_accepted(tmp_path: Path) -> None:
    replace_file(tmp_path / ("n" * 255), "new")

    assert [path.name for path in tmp_path.iterdir()] == ["n" * 255]


@pytest.mark.parametrize("command", ["metrics --out", "report --out", "status --result-file"])
@pytest.mark.parametrize("place", [".", "file/x", "none/x"])
def test_what_is_refused_is_said_in_one_line(tmp_path: Path, command: str, place: str) -> None:
    (tmp_path / "file").touch()
    ran = Surveyor("127.0.0.1:1", tmp_path / "warehouse")(*command.split(), str(tmp_path / place))

    assert (ran.code, ran.stdout, len(ran.stderr.splitlines())) == (2, "", 1)
    assert f"{command.split()[1]} {tmp_path / place} cannot be written" in ran.stderr


@pytest.mark.parametrize("name", ["", "-"])
def test_what_is_no_name(tmp_path: Path, name: str) -> None:
    ran = Surveyor("127.0.0.1:1", tmp_path / "warehouse")("report", "--out", name)

    assert (ran.code, ran.stderr.splitlines()) == (
        2,
        ["surveyor: --out names no file: give the name of the file to write"],
    )


def test_permissions_are_tried_and_not_read() -> None:
    """By its permissions root may make files in /proc; a device is written to wherever it is."""
    refuse_unwritable(Path("/dev/null"))
    with pytest.raises(UsageError, match="cannot be written"):
        refuse_unwritable(Path("/proc/report.html"))


def test_what_fails_later_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(SurveyorError, match=r"--out .* could not be written: File name too long"):
        replace_file(tmp_path / ("n" * 256), "new")
