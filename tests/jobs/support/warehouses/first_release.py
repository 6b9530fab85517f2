"""The warehouse in `warehouse-0.1.0.tar.xz`, as release 0.1.0 wrote it, whose tables store no schema version.

Cluster `default` has topics `orders` (three partitions) and `payments` (one) on brokers 0, 1 and 2. Snapshot 1 has all
of them; before snapshot 2 broker 0 ended. Plan `repair` replaced the leaders, in batch mode, before snapshot 3. The
commands were `snapshot`, `plan reconcile --name`, `whatif --lose brokers=1` and `commit --mode batch --apply`.
"""

import tarfile
from pathlib import Path

ARCHIVE = Path(__file__).with_name("warehouse-0.1.0.tar.xz")


def unpacked_in(folder: Path) -> Path:
    """Unpack the warehouse, and return its folder."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "warehouse"
