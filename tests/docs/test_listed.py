"""What the pages list by hand is all there is: exit codes, keys of the conf, codes of rejections."""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from jobs.adapters.request_server.listen_config import LISTEN_FILE_KEYS, LISTENER_KEYS, PASSWORD_PREFIX, PASSWORD_SUFFIX
from jobs.core.errors import ExitCode
from jobs.runtime.settings import CapacityConf, ClusterConf, Conf, LeadersConf, LimitsConf
from schemas.enums import LintCode, RejectionCode
from tests.docs.generated import path_of
from tests.docs.markdown import ROOT

CONF_KEY = r"^\| `([a-zN][\w.]+)` \|"
LISTEN = "## listen.properties"
CLIENTS = "### Listeners of clients"


def _rows(page: str, row: str, *, before: str = "", after: str = "") -> list[Any]:
    """The first columns of the rows of a page that look so; one column is a string, several are tuples.

    `before` and `after`: a heading that ends, or begins, the part of the page that is read.
    """
    text = path_of(page).read_text(encoding="utf-8")
    assert before in text
    assert after in text
    text = text.partition(before)[0] if before else text
    text = text.partition(after)[2] if after else text
    return re.findall(row, text, re.MULTILINE)


def test_every_exit_code_has_its_row() -> None:
    rows = _rows("exit-codes.md", r"^\| (\d+) \| (\w+) \|")
    assert rows == [(str(code.value), code.name) for code in ExitCode]


def _keys(model: type[Struct], within: str, *but: str) -> Iterator[str]:
    return (f"{within}{name}" for name in model.__struct_encode_fields__ if name not in but)


def test_every_key_of_the_conf_has_its_row() -> None:
    cluster = "clusters.NAME."
    known = [
        *_keys(Conf, "", "clusters"),
        *_keys(ClusterConf, cluster, "limits", "capacity", "leaders"),
        *_keys(CapacityConf, f"{cluster}capacity."),
        *_keys(LimitsConf, f"{cluster}limits."),
        *_keys(LeadersConf, f"{cluster}leaders."),
    ]
    assert sorted(_rows("configuration.md", CONF_KEY, before=LISTEN)) == sorted(known)


def test_every_key_of_the_listener_has_its_row() -> None:
    password = f"{PASSWORD_PREFIX}NAME{PASSWORD_SUFFIX}"
    assert sorted(_file_keys(before=CLIENTS, after=LISTEN)) == sorted([*LISTEN_FILE_KEYS, password])
    assert sorted(_file_keys(after=CLIENTS)) == sorted([*LISTENER_KEYS, password])


def _file_keys(*, before: str = "", after: str) -> Iterator[str]:
    cells = _rows("configuration.md", r"^\| (`[^|]+`) \|", before=before, after=after)
    return (key for cell in cells for key in re.findall(r"`([^`]+)`", cell))


def test_every_code_of_a_rejection_has_its_row() -> None:
    codes = _rows("planning.md", r"^\| ([A-Z_]+) \|")
    assert codes == [*sorted(RejectionCode), *sorted(LintCode)]


def test_every_dag_has_its_row() -> None:
    dags = sorted(file.stem for file in (ROOT / "airflow" / "dags").glob("*.py"))
    assert sorted(_rows("deploy.md", r"^\| `(surveyor_\w+)` \| (?:every|on|manual)")) == dags
