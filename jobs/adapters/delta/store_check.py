"""A check of a warehouse's store: whether it can be written, and whether commits are conditional there.

deltalake commits a version by a PUT on the condition that the object does not exist (`If-None-Match: *`). A store that
ignores the condition, as some that imitate S3 did, lets the later of two commits overwrite the earlier one, and neither
process learns of it. The check puts objects by the library that deltalake uses, with the same settings. It also reads,
lists and deletes them, and names each operation that is not permitted. HDFS renames a commit only to a free name, so
there a table is created and removed.
"""

import os
from collections.abc import Callable, Mapping
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from obstore import delete, get, list_with_delimiter, put
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import from_url

from jobs.adapters.delta.arrow_reads import delta_files
from jobs.adapters.delta.warehouse_paths import ACCESS_DENIED, is_hdfs, store_error_reason
from jobs.core.addresses import allows_http
from jobs.core.errors import SurveyorError, first_line
from jobs.core.option_sources import WAREHOUSE, value_at


def require_conditional_writes(warehouse: str) -> None:
    """Raise SurveyorError if the store cannot be written, or lets one commit overwrite another."""
    name = f".probe-{uuid4()}"
    if is_hdfs(warehouse):
        _write_to_hdfs(warehouse, name)
        return
    try:
        # obstore reads only AWS_ALLOW_HTTP
        store = from_url(warehouse, client_options={"allow_http": True} if allows_http(os.environ) else None)
        put(store, name, b"first", mode="create")
    except (BaseError, OSError) as error:
        raise _unwritable(warehouse, error, "write") from None
    try:
        put(store, name, b"second", mode="create")
    except AlreadyExistsError:
        is_conditional = True
    except (BaseError, OSError) as error:
        raise _unwritable(warehouse, error, "write") from None
    else:
        is_conditional = False
    finally:
        failed = _failed(
            {
                "read": lambda: get(store, name).bytes(),
                "list": lambda: list_with_delimiter(store),
                "delete": lambda: delete(store, name),
            }
        )
    if failed:
        raise _unwritable(warehouse, next(iter(failed.values())), *failed)
    if not is_conditional:
        raise SurveyorError(
            f"{warehouse} ignores conditional writes (If-None-Match): of two commits at the same time one is lost "
            "without an error; use a store that has them, as S3, GCS, ADLS and current MinIO do, or HDFS or a folder"
        )


def _failed(operations: Mapping[str, Callable[[], object]]) -> dict[str, Exception]:
    """Run all operations; return the errors of those that failed, by name."""
    failed: dict[str, Exception] = {}
    for name, operation in operations.items():
        try:
            operation()
        except (BaseError, OSError) as error:
            failed[name] = error
    return failed


def _write_to_hdfs(warehouse: str, name: str) -> None:
    folder = warehouse.rstrip("/")
    try:
        DeltaTable.create(f"{folder}/{name}", pa.schema([pa.field("number", pa.int64())]))
        files = delta_files(folder)
        files.delete_dir(f"{name}/_delta_log")
        # the client empties a folder that it is asked to delete, and deletes an empty one only as a file
        for emptied in (f"{name}/_delta_log", name):
            files.delete_file(emptied)
    except (DeltaError, OSError) as error:
        raise _unwritable(warehouse, error) from None


def _unwritable(warehouse: str, error: Exception, *operations: str) -> SurveyorError:
    reason = store_error_reason(error) or first_line(error)
    refused = f"; refused: {', '.join(operations)}" if operations and reason == ACCESS_DENIED else ""
    return SurveyorError(f"{value_at(WAREHOUSE, warehouse)} cannot be written: {reason}{refused}")
