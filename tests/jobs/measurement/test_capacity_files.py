"""Files of capacities: CSV and Cruise Control's, and the line of each fault."""

from pathlib import Path
from typing import Final

import pytest

from jobs.core.errors import UsageError
from jobs.measurement.capacity_files import read_capacity_file
from jobs.repositories.capacities import Capacity

READ: Final[list[tuple[str, str, list[Capacity]]]] = [
    (
        "the columns of the contract",
        "broker,resource,capacity\n-1,in,1e8\n3,disk,4000000000000\n\n3,cpu,100\n",
        [
            Capacity(-1, None, "in", 1e8, None),
            Capacity(3, None, "disk", 4e12, None),
            Capacity(3, None, "cpu", 100.0, None),
        ],
    ),
    (
        "log dirs, shares, and a withdrawn capacity",
        "capacity,limit_share,resource,log_dir,broker\n5, 0.9 ,disk,/a,1\n6,,disk,/b,1\n,,out,,1\n",
        [
            Capacity(1, "/a", "disk", 5.0, 0.9),
            Capacity(1, "/b", "disk", 6.0, None),
            Capacity(1, None, "out", None, None),
        ],
    ),
    (
        "Cruise Control's capacity.json",
        """{"brokerCapacities": [
            {"brokerId": "-1", "capacity": {"DISK": "100000", "CPU": "100", "NW_IN": "10000", "NW_OUT": "20000"}},
            {"brokerId": 0, "capacity": {"NW_IN": 50000}, "doc": "of broker 0"}
        ]}""",
        [
            Capacity(-1, None, "disk", 100_000 * 1024 * 1024, None),
            Capacity(-1, None, "cpu", 100.0, None),
            Capacity(-1, None, "in", 10_000 * 1024, None),
            Capacity(-1, None, "out", 20_000 * 1024, None),
            Capacity(0, None, "in", 50_000 * 1024, None),
        ],
    ),
    (
        "Cruise Control's capacityCores.json",
        '{"brokerCapacities":[{"brokerId":"1","capacity":{"CPU":{"num.cores":"16"}}}]}',
        [Capacity(1, None, "cpu", 100.0, None)],
    ),
    (
        "Cruise Control's capacityJBOD.json",
        '{"brokerCapacities":[{"brokerId":"1","capacity":{"DISK":{"/tmp/a":"2","/tmp/b":"1"}}}]}',
        [
            Capacity(1, "/tmp/a", "disk", 2 * 1024 * 1024, None),  # noqa: S108 - of the file
            Capacity(1, "/tmp/b", "disk", 1024 * 1024, None),  # noqa: S108 - of the file
        ],
    ),
]


@pytest.mark.parametrize(("text", "expected"), [case[1:] for case in READ], ids=[case[0] for case in READ])
def test_a_file(tmp_path: Path, text: str, expected: list[Capacity]) -> None:
    (path := tmp_path / "capacity").write_text(text)
    assert read_capacity_file(path) == expected


HEADER: Final = "broker,resource,capacity,log_dir,limit_share\n"


def _of(capacity: str, broker: str = '"1"') -> str:
    return f'{{"brokerCapacities":[{{"brokerId":{broker},"capacity":{capacity}}}]}}'


FAULTS: Final[list[tuple[str, str]]] = [
    ("", "has no column broker"),
    (HEADER, "has no capacity; expected broker,resource,capacity"),
    ("broker,resource,capacty\n", "unknown column 'capacty'; did you mean capacity?"),
    ("broker,resource\n", "has no column capacity"),
    (HEADER + "1,in,1,,\n1,in\n", "line 3 has 2 fields, expected 5"),
    (HEADER + "1,in,1,,\n1\n", "line 3 has 1 field, expected 5"),
    (HEADER + '1,in,1,,\n"1,in,1,,\n2,in,1,,\n', "line 3: a quote is not closed"),
    (HEADER + "1,nw_in,1,,\n", "line 2: resource is 'nw_in', expected one of disk, in, out, cpu"),
    (HEADER + "b1,in,1,,\n", "line 2: broker is 'b1', expected an id, or -1"),
    (HEADER + "-2,in,1,,\n", "line 2: broker is '-2'"),
    (HEADER + "1,cpu,400,,\n", "line 2: capacity is '400', expected a number above 0, 100 at most"),
    (HEADER + "1,replicas,2.5,,\n", "line 2: capacity is '2.5', expected a whole number of replicas"),
    (HEADER + "1,in,0,,\n", "line 2: capacity is '0', expected a finite number above 0"),
    (HEADER + "1,in,nan,,\n", "line 2: capacity is 'nan'"),
    (HEADER + "1,in,10MB,,\n", "line 2: capacity is '10MB'"),
    (HEADER + "1,in,1,,80\n", "line 2: limit_share is '80', expected a number above 0, 1 at most"),
    (HEADER + "1,in,1,/a,\n", "line 2: in has a log_dir, expected one of disk only"),
    (HEADER + "-1,in,1,,\n\n-1,in,2,,\n", "line 4 repeats in of every broker, which line 2 has"),
    (HEADER + "1,disk,1,/a,\n1,disk,2,,\n", "line 2 has the disk of a log dir, and line 3 that of the whole broker"),
    ('{"brokerCapacities":[', 'expected {"brokerCapacities":[{"brokerId":"-1"'),
    ('{"capacities":[]}', "missing required field `brokerCapacities`"),
    (_of('{"RAM":"1"}'), "entry 1: resource is 'RAM', expected one of DISK, CPU, NW_IN, NW_OUT"),
    (_of('{"NW_IN":"-1"}'), "entry 1: NW_IN is '-1', expected a finite number above 0"),
    (_of('{"NW_IN":{"a":"1"}}'), "entry 1: NW_IN is {'a': '1'}, expected a number"),
    (_of('{"CPU":{"cores":"1"}}'), "entry 1: CPU is {'cores': '1'}, expected a number, num.cores of CPU"),
    (_of('{"CPU":"100"}', '"x"'), "entry 1: broker is 'x'"),
]


@pytest.mark.parametrize(("text", "message"), FAULTS)
def test_a_fault(tmp_path: Path, text: str, message: str) -> None:
    (path := tmp_path / "capacity").write_text(text)
    with pytest.raises(UsageError) as raised:
        read_capacity_file(path)
    assert message in str(raised.value)
