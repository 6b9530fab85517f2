"""Hadoop's settings with which Spark reads and writes a warehouse on S3."""

from collections.abc import Mapping
from typing import Final

S3: Final = frozenset({"s3", "s3a"})
"""Schemes of URLs on S3."""


def s3_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return Hadoop's settings for S3, from the same environment variables as deltalake's; keys are not among them.

    >>> sorted(s3_settings({"AWS_REGION": "eu-central-1", "AWS_SECRET_ACCESS_KEY": "secret"}).values())
    ['eu-central-1', 'org.apache.hadoop.fs.s3a.S3AFileSystem']
    """
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    settings = {"spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}
    if region:
        settings["spark.hadoop.fs.s3a.endpoint.region"] = region
    if endpoint:
        settings |= {"spark.hadoop.fs.s3a.endpoint": endpoint, "spark.hadoop.fs.s3a.path.style.access": "true"}
    return settings
