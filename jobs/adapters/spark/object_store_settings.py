"""Hadoop's settings with which Spark reads a warehouse on an object store, from deltalake's environment variables.

No key is among them, because Spark shows its settings. S3's client reads the environment itself. For ADLS a setting
refers to the variable, and Hadoop reads that in each process: the driver and the executors need it. For GCS a setting
has the path of the file with the key.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from jobs.adapters.java.jars import AZURE, GCS, S3
from jobs.core.addresses import s3_endpoint
from jobs.core.errors import UsageError
from jobs.core.option_sources import WAREHOUSE, value_at

_HADOOP: Final = "spark.hadoop.fs"
_OAUTH: Final = "org.apache.hadoop.fs.azurebfs.oauth2"

_KEY: Final = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY")
_SAS: Final = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
_CLIENT: Final = ("AZURE_CLIENT_ID", "AZURE_STORAGE_CLIENT_ID")
_SECRET: Final = ("AZURE_CLIENT_SECRET", "AZURE_STORAGE_CLIENT_SECRET")
_TENANT: Final = ("AZURE_TENANT_ID", "AZURE_STORAGE_TENANT_ID")
_KEY_FILE: Final = ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH")
_INLINE_KEY: Final = "GOOGLE_SERVICE_ACCOUNT_KEY"
"""The variables of deltalake that name one thing."""

_AZURE_METRICS: Final = f"{_HADOOP}.azure.metrics.collection.enabled"
"""Hadoop 3.5.0 collects metrics in a thread that is not a daemon; with it, a JVM of spark-submit would never end."""

_OF_GOOGLE: Final = {
    # Hadoop's defaults are those of its own connector: other classes, and a block size that Google's cannot parse
    "gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
    "AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
    "gs.block.size": str(64 << 20),
}


def store_settings(warehouse: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for a warehouse; none if it is in a folder or on HDFS."""
    scheme = urlsplit(warehouse).scheme
    if scheme in S3:
        return _s3_settings(environment)
    if scheme in GCS:
        return _gcs_settings(warehouse, environment)
    return _azure_settings(warehouse, environment) if scheme in AZURE else {}


def _s3_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return those for S3.

    >>> sorted(_s3_settings({"AWS_REGION": "eu-central-1", "AWS_SECRET_ACCESS_KEY": "secret"}).values())
    ['eu-central-1', 'org.apache.hadoop.fs.s3a.S3AFileSystem']
    """
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    endpoint = s3_endpoint(environment)
    settings = {f"{_HADOOP}.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}
    if region:
        settings[f"{_HADOOP}.s3a.endpoint.region"] = region
    if endpoint:
        settings |= {f"{_HADOOP}.s3a.endpoint": endpoint, f"{_HADOOP}.s3a.path.style.access": "true"}
    return settings


def _azure_settings(warehouse: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return those for ADLS, by the same precedence as deltalake: a key, an application, a SAS token, the machine.

    >>> url = "abfss://lake@account.dfs.core.windows.net/surveyor"
    >>> for name, value in _azure_settings(url, {"AZURE_STORAGE_ACCOUNT_KEY": "secret"}).items():
    ...     print(name.removeprefix("spark.hadoop.fs.azure."), value)
    metrics.collection.enabled false
    account.auth.type.account.dfs.core.windows.net SharedKey
    account.key.account.dfs.core.windows.net ${env.AZURE_STORAGE_ACCOUNT_KEY}
    """
    url = urlsplit(warehouse)
    if not url.username:
        raise UsageError(
            f"Spark does not find the account of {value_at(WAREHOUSE, warehouse)}: write it as "
            f"{url.scheme}://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER"
        )

    def reference(names: tuple[str, ...]) -> str | None:
        return next((f"${{env.{name}}}" for name in names if environment.get(name)), None)

    key, secret, sas, client, tenant = map(reference, (_KEY, _SECRET, _SAS, _CLIENT, _TENANT))
    if key:
        kind, values = "SharedKey", {"account.key": key}
    elif secret and client and tenant:
        kind, values = (
            "OAuth",
            {
                "account.oauth.provider.type": f"{_OAUTH}.ClientCredsTokenProvider",
                "account.oauth2.client.endpoint": f"https://login.microsoftonline.com/{tenant}/oauth2/token",
                "account.oauth2.client.id": client,
                "account.oauth2.client.secret": secret,
            },
        )
    elif sas:
        kind, values = "SAS", {"sas.fixed.token": sas}
    else:
        kind, values = (
            "OAuth",
            {
                "account.oauth.provider.type": f"{_OAUTH}.MsiTokenProvider",
                **({"account.oauth2.client.id": client} if client else {}),
            },
        )
    named = {"account.auth.type": kind, **values}
    of_account = {f"{_HADOOP}.azure.{name}.{url.hostname}": value for name, value in named.items()}
    return {_AZURE_METRICS: "false"} | of_account


def _gcs_settings(warehouse: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return those for GCS: the file of a service account, as deltalake reads it, or Application Default Credentials.

    >>> settings = _gcs_settings("gs://lake/surveyor", {"GOOGLE_SERVICE_ACCOUNT": "/etc/surveyor/account.json"})
    >>> for name in ("auth.type", "auth.service.account.json.keyfile"):
    ...     print(settings[f"spark.hadoop.fs.gs.{name}"])
    SERVICE_ACCOUNT_JSON_KEYFILE
    /etc/surveyor/account.json
    """
    file = next((environment[name] for name in _KEY_FILE if environment.get(name)), None)
    if not file and environment.get(_INLINE_KEY):
        raise UsageError(
            f"Spark does not read the key in {_INLINE_KEY} for {value_at(WAREHOUSE, warehouse)}: write it to a file, "
            f"and name that in {_KEY_FILE[0]}"
        )
    account = (
        {"auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE", "auth.service.account.json.keyfile": file}
        if file
        else {"auth.type": "APPLICATION_DEFAULT"}
    )
    return {f"{_HADOOP}.{name}": value for name, value in _OF_GOOGLE.items()} | {
        f"{_HADOOP}.gs.{name}": value for name, value in account.items()
    }
