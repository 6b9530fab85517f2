"""Checks of a warehouse's folder before any work starts, and one-line messages for failed writes.

deltalake converts local paths to URLs, and panics or looks elsewhere for characters that a URL cannot contain. Spark
reads paths as glob patterns. deltalake, Arrow and Spark agree on all other paths, including blanks and umlauts.
"""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit
from uuid import uuid4

from jobs.adapters.kerberos.login import ticket_failure
from jobs.core.addresses import S3_ENDPOINTS, allows_http, is_amazon_s3, refuse_credentials, s3_endpoint
from jobs.core.errors import SurveyorError, UnreadableError, UsageError
from jobs.core.masking import strip_passwords
from jobs.core.option_sources import WAREHOUSE, option_name, value_at

_IMPOSSIBLE: Final = re.compile(r"[\[\]{}*?^|\\\x00-\x1f\x7f]|%[0-9A-Fa-f]{2}")

_ADDRESS: Final = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?")

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")

MAX_NAME_CHARS: Final = 200
"""Maximum characters of an encoded cluster name, so that `cluster=NAME` is a valid folder name."""

_REASONS: Final = {
    "No space left on device": "no space is left on the disk",
    "Disk quota exceeded": "the disk quota is used up",
    "Read-only file system": "the file system is read-only",
    "Permission denied": "permission was denied",
}
"""Messages of the operating system, which appear in the errors of all libraries."""


HDFS: Final = "hdfs"

_IN_USER: Final = frozenset({"abfs", "abfss"})
"""Schemes whose URLs name the container before the host: abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER."""

_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HOST_AND_PORT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(:\d+)?")

_FORMS: Final = {
    "s3": "s3://BUCKET/FOLDER",
    "s3a": "s3a://BUCKET/FOLDER",
    "gs": "gs://BUCKET/FOLDER",
    "abfs": "abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER",
    "abfss": "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER",
    HDFS: "hdfs://NAMENODE:PORT/FOLDER",
}
"""URLs of warehouses by scheme."""

_KNOWN_SCHEMES: Final = ", ".join(f"{scheme}://" for scheme in sorted(_FORMS))

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/?)")
"""The beginning of a URL that is not one of a warehouse; a folder with such a name is written as ./NAME."""

_ODD_PARTS: Final = re.compile(r"//+|/\.{1,2}(?=/|$)")
"""An empty part of a URL's path, `.` or `..`: object stores take them for names, and libraries differ."""

_AWS: Final = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_AZURE: Final = "AZURE_STORAGE_ACCOUNT_KEY and others of docs/configuration.md"
_CREDENTIALS: Final = {
    "s3": _AWS,
    "s3a": _AWS,
    "gs": "GOOGLE_SERVICE_ACCOUNT, the path of a key file",
    "abfs": _AZURE,
    "abfss": _AZURE,
    HDFS: "HADOOP_USER_NAME, or a Kerberos ticket",
}
"""Sources of credentials, by scheme."""

ACCESS_DENIED: Final = "access is denied: the role or the keys need to list, read, write and delete objects there"

_NO_BUCKET: Final = "there is no such bucket: create it, or correct the URL of the warehouse"
_BUSY: Final = "the store asks for fewer requests: run the same command again later"
_UNKNOWN_HOST: Final = "its host is not known to this machine: check the URL or AWS_ENDPOINT_URL, and DNS"
_UNTRUSTED: Final = (
    "this machine does not trust its certificate: name the file of its CA in SSL_CERT_FILE, and import that into "
    "Java's cacerts for Spark"
)
_NO_TLS: Final = "its server does not use TLS: check the port, or write http:// in AWS_ENDPOINT_URL"
_NO_ROLE: Final = (
    "this machine has no role, and the environment has no keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
)
_NO_HTTP: Final = (
    "its address begins with http://: use https://, or set AWS_ALLOW_HTTP=true (S3) or AZURE_ALLOW_HTTP=true (ADLS)"
)
_OTHER_REGION: Final = "the bucket is in another region: set AWS_REGION"

_STORE_REASONS: Final = {
    # the errors of a machine without a role or account contain a status, too, so they are first
    "computeMetadata": "this machine has no service account, and no key is given: set GOOGLE_SERVICE_ACCOUNT to the "
    "path of a key file",
    "metadata/identity": "this machine has no managed identity, and the environment has no credentials: set "
    "AZURE_STORAGE_ACCOUNT_KEY or others of docs/configuration.md",
    "IMDS": _NO_ROLE,
    "169.254.169.254": _NO_ROLE,
    "AccessDenied": ACCESS_DENIED,
    "AuthorizationPermissionMismatch": ACCESS_DENIED,
    "NoSuchBucket": _NO_BUCKET,
    "The specified bucket does not exist": _NO_BUCKET,
    "ContainerNotFound": _NO_BUCKET.replace("bucket", "container"),
    "ExpiredToken": "the credentials have expired: get new ones, with their AWS_SESSION_TOKEN, or use the "
    "machine's role",
    "InvalidAccessKeyId": "the access key is not known there: check AWS_ACCESS_KEY_ID, and the address in "
    "AWS_ENDPOINT_URL",
    "SignatureDoesNotMatch": "the secret key or this machine's clock is wrong: check AWS_SECRET_ACCESS_KEY "
    "and the clock",
    "AuthenticationFailed": "the key or this machine's clock is wrong: check AZURE_STORAGE_ACCOUNT_KEY and the clock",
    "RequestTimeTooSkewed": "this machine's clock differs from the store's: set it",
    "AuthorizationHeaderMalformed": _OTHER_REGION,
    "PermanentRedirect": _OTHER_REGION,
    "incorrectly configured region": _OTHER_REGION,
    "SlowDown": _BUSY,
    "ServerBusy": _BUSY,
    "AccessControlException": "access is denied: the user needs to list, read, write and delete files there; it is "
    "that of HADOOP_USER_NAME or of the Kerberos ticket",
    "SafeModeException": "HDFS is in safe mode: wait until it has started; `hdfs dfsadmin -safemode get` shows "
    "the mode",
    "DSQuotaExceeded": "the quota of the folder in HDFS is used up: raise it with `hdfs dfsadmin -setSpaceQuota`",
    "NSQuotaExceeded": "the quota of the folder in HDFS is used up: raise it with `hdfs dfsadmin -setQuota`",
    "No credentials were supplied": "there is neither a Kerberos ticket nor a keytab: run kinit, or name a keytab in "
    "KRB5_CLIENT_KTNAME",
    "GSSAPI error": "the Kerberos login failed: run kinit, or name a keytab in KRB5_CLIENT_KTNAME",
    "RPC listener disconnected": "HDFS closed the connection: it may need Kerberos, which HADOOP_CONF_DIR does not say",
    "Connection refused": "no server answers at its address: check the URL or AWS_ENDPOINT_URL, and that it runs",
    "Could not resolve host": _UNKNOWN_HOST,
    "dns error": _UNKNOWN_HOST,
    "failed to lookup address": _UNKNOWN_HOST,
    "invalid peer certificate": _UNTRUSTED,
    "InvalidCertificate(": _UNTRUSTED,
    "SSL peer certificate": _UNTRUSTED,
    "PKIX path building failed": _UNTRUSTED,
    "InvalidContentType": _NO_TLS,
    "SSL connect error": _NO_TLS,
    "Unsupported or unrecognized SSL message": _NO_TLS,
    "Missing AccessKeyId": "AWS_SECRET_ACCESS_KEY is set, and AWS_ACCESS_KEY_ID is not: set both, or neither to use "
    "the machine's role",
    "Missing SecretAccessKey": "AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not: set both, or neither to "
    "use the machine's role",
    "URL scheme is not allowed": _NO_HTTP,
    "BadScheme": _NO_HTTP,
}
"""Codes of object stores and of HDFS, which appear in the errors of all libraries; Arrow has them as ACCESS_DENIED."""

_KERBEROS: Final = frozenset({"No credentials were supplied", "GSSAPI error"})
"""Codes of failed logins, whose reason MIT's library tells if it is asked again."""

_STATUS_REASONS: Final = {
    "403": ACCESS_DENIED,
    "503": _BUSY,
    "301": _OTHER_REGION,
    "400": "the request is refused, because the credentials have expired or the region is another one: get new "
    "credentials, or set AWS_REGION",
}
"""Reasons by HTTP status, for answers without a body, as those to HEAD."""

_STATUS: Final = re.compile(
    r"HTTP status (\d{3})|Status Code: (\d{3})|\b(301) Moved|\b(403) Forbidden|\b(503) Service Unavailable"
)
"""An HTTP status in the errors of Arrow, of Hadoop and of deltalake."""

_CAUSE: Final = re.compile("\u21b3\\S* *([^\u21b3]+)")
"""A cause in an error of deltalake, which has a line for each; the last one is the innermost."""

_DELTALAKE_ENDPOINT: Final = "AWS_ENDPOINT"
"""A variable with that address that only deltalake reads; whether it or AWS_ENDPOINT_URL wins is undefined."""


def _refuse_invalid_s3_endpoint(shown: str, environment: Mapping[str, str]) -> None:
    """Raise UsageError if readers of the warehouse would connect to different servers, or to none."""
    for name in (*S3_ENDPOINTS, _DELTALAKE_ENDPOINT):
        address = environment.get(name) or ""
        refuse_credentials(f"{shown}: {name}", address, f"give https://HOST[:PORT], and the keys in {_AWS}")
        if address and not _ADDRESS.fullmatch(address):
            raise UsageError(f"{shown}: {name} is not an address of the form https://HOST[:PORT]")
    endpoint = s3_endpoint(environment) or ""
    own = environment.get(_DELTALAKE_ENDPOINT)
    if own and _s3_server(own) != _s3_server(endpoint):
        known = next((name for name in S3_ENDPOINTS if environment.get(name)), None)
        advice = (
            f"set {S3_ENDPOINTS[-1]}={own} instead, or unset {_DELTALAKE_ENDPOINT} if the bucket is at Amazon"
            if known is None
            else f"unset {_DELTALAKE_ENDPOINT}, as {known} is set"
        )
        raise UsageError(
            f"{shown}: Arrow and Spark do not read {_DELTALAKE_ENDPOINT}, and would look for the bucket elsewhere; "
            f"{advice}"
        )
    if endpoint.startswith("http://") and not allows_http(environment):
        raise UsageError(
            f"{shown}: its server {endpoint} is not encrypted; write https:// in {S3_ENDPOINTS[-1]}, or set "
            "AWS_ALLOW_HTTP=true"
        )


def _s3_server(address: str) -> str:
    """Return what two addresses of one S3 server have in common, an empty text for Amazon's, which is the default."""
    return "" if is_amazon_s3(address) else address.rstrip("/")


def is_local(path: str) -> bool:
    return "://" not in path


def is_hdfs(path: str) -> bool:
    return urlsplit(path).scheme == HDFS


def takes_spark_commits(warehouse: str) -> bool:
    """Return whether Spark may commit as well as deltalake: Delta's log store for S3 overwrites concurrent commits.

    In a folder both hold locks (`lock_files`), and HDFS renames a commit only to a name that is free.
    On object stores deltalake commits everything: it puts a commit on the condition that there is none yet.
    """
    return is_local(warehouse) or is_hdfs(warehouse)


def absolute(warehouse: str) -> str:
    """Return a warehouse's absolute path, for processes with another working directory."""
    return str(Path(warehouse).absolute()) if is_local(warehouse) else warehouse


def no_warehouse(folder: str, hint: str = "") -> UnreadableError:
    """Return the error for a folder that is not a warehouse; `hint` is a further remedy."""
    more = f", or {hint}" if hint else ""
    return UnreadableError(f"no warehouse at {absolute(folder)}; check {option_name(WAREHOUSE)}{more}")


def refuse_invalid_path(warehouse: str) -> None:
    """Raise UsageError for a path that cannot be a warehouse, UnreadableError if part of it is a file."""
    if not is_local(warehouse):
        _refuse_invalid_url(warehouse)
        return
    scheme = _SCHEME.match(warehouse)
    form = _FORMS.get(scheme[1].lower()) if scheme else None
    if scheme and (form or scheme[2]):
        expected = f"a URL of the form {form}" if form else f"the path of a folder, or a URL of {_KNOWN_SCHEMES}"
        raise UsageError(f"{value_at(WAREHOUSE, scheme[1])}:...: expected {expected}")
    folder = Path(warehouse).absolute()
    if odd := _IMPOSSIBLE.search(str(folder)):
        raise UsageError(
            f"{value_at(WAREHOUSE, repr(warehouse))}: {odd[0]!r} in the path {str(folder)!r} cannot be part of a Delta "
            r"table's address, nor can [ ] { } * ? ^ | \, control characters, and % before two hexadecimal digits; "
            "choose another folder, or a symbolic link without them",
        )
    for part in (folder, *folder.parents):
        if part.exists():
            if not part.is_dir():
                raise UnreadableError(
                    f"no warehouse at {warehouse}: {part} is a file; name a folder in {option_name(WAREHOUSE)}"
                )
            return


def _refuse_invalid_url(warehouse: str) -> None:
    """Raise UsageError for a URL that cannot be a warehouse; the message contains no credentials."""
    scheme, _, rest = warehouse.partition("://")
    if scheme not in _FORMS:
        advice = (
            f"write {scheme.lower()}:// in lower case"
            if scheme.lower() in _FORMS
            else f"give a folder as its path, or a URL of {_KNOWN_SCHEMES}"
        )
        raise UsageError(f"{value_at(WAREHOUSE, scheme)}://...: no warehouse can be there; {advice}")
    place, _, last_host = rest.rpartition("@")  # a secret may contain a slash, so the host is not what urlsplit says
    if "@" in rest and (scheme not in _IN_USER or not _BUCKET.fullmatch(place)):
        raise UsageError(
            f"{value_at(WAREHOUSE, scheme)}://...: the URL contains @, as one with credentials, which would be shown "
            f"in messages and logs; give them in the environment ({_CREDENTIALS[scheme]}), or use the machine's role"
        )
    host = last_host.partition("/")[0]
    if not (_HOST_AND_PORT if scheme == HDFS else _BUCKET).fullmatch(host) or (scheme in _IN_USER and not place):
        raise UsageError(f"{value_at(WAREHOUSE, scheme)}://...: expected a URL of the form {_FORMS[scheme]}")
    url = urlsplit(warehouse)
    shown = f"{value_at(WAREHOUSE, scheme)}://{rest.partition('/')[0]}"
    if url.query or url.fragment:
        raise UsageError(f"{shown}{url.path}: the URL of a warehouse ends with its folder, without ? and #")
    if url.scheme.startswith("s3"):
        _refuse_invalid_s3_endpoint(f"{shown}{url.path}", os.environ)
    if not url.path.strip("/"):
        raise UsageError(
            f"{shown}{url.path}: expected a folder, as in {_FORMS[scheme]}; a warehouse has many folders of its own, "
            "so it is not put at the top"
        )
    if odd := _IMPOSSIBLE.search(url.path) or _ODD_PARTS.search(url.path):
        raise UsageError(
            f"{value_at(WAREHOUSE, repr(warehouse))}: {odd[0]!r} cannot be part of a Delta table's address"
        )


def refuse_invalid_cluster_name(cluster: str) -> None:
    """Raise UsageError for a cluster name that cannot be a partition value, which is part of a folder name."""
    if not cluster.strip() or _CONTROL.search(cluster) or len(quote(cluster, safe="")) > MAX_NAME_CHARS:
        raise UsageError(
            f"{cluster!r} cannot be the name of a cluster: use printable characters, and at most "
            f"{MAX_NAME_CHARS} of them after URL encoding",
        )


def existing_folder(warehouse: str) -> Path:
    """Return the folder of a local warehouse, or its first existing parent."""
    folder = Path(warehouse).absolute()
    return next(part for part in (folder, *folder.parents) if part.is_dir())


def refuse_unwritable(warehouse: str) -> None:
    """Raise SurveyorError if the folder, or its first existing parent, is not writable."""
    if not is_local(warehouse):
        return
    existing = existing_folder(warehouse)
    try:
        Path(
            tempfile.mkdtemp(prefix=".surveyor-", dir=existing)
        ).rmdir()  # permissions say nothing for root: /proc looks writable
    except OSError as error:
        raise SurveyorError(
            f"{value_at(WAREHOUSE, warehouse)} cannot be written: no folder can be made in {existing}: "
            f"{_REASONS.get(error.strerror or '', error.strerror)}; "
            "choose another folder, or fix its permissions",
        ) from None


def refuse_without_log(table: str, path: str) -> None:
    """Raise UnreadableError for a table's folder that has files but no log."""
    folder = Path(path)
    if is_local(path) and folder.is_dir() and any(folder.iterdir()) and not any(folder.glob("_delta_log/*")):
        raise UnreadableError(
            f"table {table} has no _delta_log at {folder.absolute()}, so its files cannot be read",
            advice="restore that log, or move the whole warehouse away and start again with `surveyor snapshot`",
        )


def make_all(warehouse: str, names: Sequence[str], make: Callable[[list[str]], object]) -> None:
    """Create new tables; on a local disk either all of them are created or none.

    They are created in a temporary folder of the warehouse and moved to their places. A table that another process has
    created in the meantime is kept.
    """
    if not is_local(warehouse):
        make([f"{warehouse.rstrip('/')}/{name}" for name in names])
        return
    folder = Path(warehouse)
    made = [part for part in (folder, *folder.parents) if not part.exists()]
    building = folder / f".new-{uuid4()}"
    try:
        building.mkdir(parents=True)
        make([str(building / name) for name in names])
        for name in names:
            _move(building / name, folder / name)
    finally:
        shutil.rmtree(building, ignore_errors=True)
        for part in made:
            _remove_empty(part)


def _move(table: Path, place: Path) -> None:
    try:
        table.rename(place)
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
            raise


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:  # it is not empty, or does not exist
        return


def store_error_reason(error: BaseException) -> str | None:
    """Return what an object store or HDFS refused, None for any other error, such as a file that is lost."""
    text = str(error)
    plain = text.replace("_", "").casefold()
    for code, reason in _STORE_REASONS.items():
        if code.casefold() in plain:
            return (ticket_failure(os.environ) if code in _KERBEROS else None) or reason
    status = next((number for match in _STATUS.findall(text) for number in match if number), "")
    if status in _STATUS_REASONS:
        return _STATUS_REASONS[status]
    if not isinstance(error, OSError) or isinstance(error, FileNotFoundError) or "LocalFileSystem" in text:
        return None
    causes = _CAUSE.findall(text)
    return strip_passwords(" ".join(causes[-1].split())) if causes else None


def disk_error_message(error: BaseException) -> str | None:
    """Return a one-line message for an error of the disk or of the warehouse's store, None for any other error.

    JVM and deltalake report errors as text only, so the text is searched.
    """
    if (refused := store_error_reason(error)) is not None:
        return f"the store of the warehouse: {refused}; `surveyor doctor` examines it"
    text = str(error)
    for phrase, reason in _REASONS.items():
        if phrase in text:
            return (
                f"{reason}, of the warehouse, the temporary folder (TMPDIR) or the output: unfinished work was "
                "discarded; fix that and run the same command again"
            )
    if type(error).__module__.startswith("deltalake"):  # not imported here, as that takes as long as a short command
        first = strip_passwords((text.splitlines() or [""])[0])[:200]
        return f"the warehouse was not written ({first}); `surveyor doctor` examines its tables"
    return None
