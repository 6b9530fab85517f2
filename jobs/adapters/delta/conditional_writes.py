"""A check of an object store: whether commits are conditional there.

deltalake commits a version by a PUT on the condition that the object does not exist (`If-None-Match: *`). A store that
ignores the condition, as some that imitate S3 did, lets the later of two commits overwrite the earlier one, and neither
process learns of it. The check puts objects by the library that deltalake uses, with the same settings.
"""

from uuid import uuid4

from obstore import delete, put
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import from_url

from jobs.adapters.delta.warehouse_paths import is_hdfs, store_error_reason
from jobs.core.errors import SurveyorError


def require_conditional_writes(warehouse: str) -> None:
    """Raise SurveyorError if the store cannot be written, or lets one commit overwrite another; HDFS is not asked."""
    if is_hdfs(warehouse):
        return
    name = f".probe-{uuid4()}"
    try:
        store = from_url(warehouse)
        put(store, name, b"first", mode="create")
        try:
            put(store, name, b"second", mode="create")
        except AlreadyExistsError:
            is_conditional = True
        else:
            is_conditional = False
        finally:
            delete(store, name)
    except (BaseError, OSError) as error:
        reason = store_error_reason(error) or str(error).splitlines()[0][:200]
        raise SurveyorError(f"--warehouse {warehouse} cannot be written: {reason}") from None
    if not is_conditional:
        raise SurveyorError(
            f"{warehouse} ignores conditional writes (If-None-Match): of two commits at the same time one is lost "
            "without an error; use a store that has them, as S3, GCS, ADLS and current MinIO do, or HDFS or a folder"
        )
