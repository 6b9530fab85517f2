"""Hadoop's settings for ADLS and GCS by kind of credentials; the values stay in the environment or in a file."""

import pytest

from jobs.adapters.spark.object_store_settings import store_settings
from jobs.core.errors import UsageError

VALUE = "of the environment"
WAREHOUSE = "abfss://lake@account.dfs.core.windows.net/surveyor"
KEY, SAS = {"AZURE_STORAGE_ACCOUNT_KEY": VALUE}, {"AZURE_STORAGE_SAS_TOKEN": VALUE}
APPLICATION = {"AZURE_TENANT_ID": VALUE, "AZURE_CLIENT_ID": VALUE, "AZURE_CLIENT_SECRET": VALUE}


@pytest.mark.parametrize(
    ("variables", "kind", "setting", "value"),
    [
        (KEY | SAS | APPLICATION, "SharedKey", "account.key", "${env.AZURE_STORAGE_ACCOUNT_KEY}"),
        (SAS | APPLICATION, "OAuth", "account.oauth2.client.secret", "${env.AZURE_CLIENT_SECRET}"),
        (SAS, "SAS", "sas.fixed.token", "${env.AZURE_STORAGE_SAS_TOKEN}"),
        ({}, "OAuth", "account.oauth.provider.type", "org.apache.hadoop.fs.azurebfs.oauth2.MsiTokenProvider"),
        ({"AZURE_CLIENT_ID": VALUE}, "OAuth", "account.oauth2.client.id", "${env.AZURE_CLIENT_ID}"),
    ],
)
def test_settings_refer_to_credentials(variables: dict[str, str], kind: str, setting: str, value: str) -> None:
    settings = store_settings(WAREHOUSE, variables)

    def named(name: str) -> str:
        return settings[f"spark.hadoop.fs.azure.{name}.account.dfs.core.windows.net"]

    assert (named("account.auth.type"), named(setting)) == (kind, value)
    assert VALUE not in settings.values()


def test_a_url_without_account_is_refused() -> None:
    with pytest.raises(UsageError, match="abfss://CONTAINER@ACCOUNT"):
        store_settings("abfss://lake/surveyor", KEY)


@pytest.mark.parametrize(
    ("variables", "kind", "file"),
    [
        ({"GOOGLE_SERVICE_ACCOUNT": "/keys/account.json"}, "SERVICE_ACCOUNT_JSON_KEYFILE", "/keys/account.json"),
        ({"GOOGLE_SERVICE_ACCOUNT_PATH": "account.json"}, "SERVICE_ACCOUNT_JSON_KEYFILE", "account.json"),
        ({"GOOGLE_APPLICATION_CREDENTIALS": "/keys/account.json"}, "APPLICATION_DEFAULT", None),
        ({}, "APPLICATION_DEFAULT", None),
    ],
)
def test_settings_of_gcs_name_the_file_of_an_account(variables: dict[str, str], kind: str, file: str | None) -> None:
    settings = store_settings("gs://bucket/surveyor", variables)
    assert settings["spark.hadoop.fs.gs.auth.type"] == kind
    assert settings.get("spark.hadoop.fs.gs.auth.service.account.json.keyfile") == file


def test_a_key_of_gcs_that_is_no_file_is_refused() -> None:
    with pytest.raises(UsageError, match="write it to a file") as refused:
        store_settings("gs://bucket/surveyor", {"GOOGLE_SERVICE_ACCOUNT_KEY": VALUE})
    assert VALUE not in str(refused.value)


@pytest.mark.parametrize("warehouse", ["/data/surveyor", "hdfs://name/surveyor", ""])
def test_other_warehouses_need_none(warehouse: str) -> None:
    assert store_settings(warehouse, KEY) == {}
