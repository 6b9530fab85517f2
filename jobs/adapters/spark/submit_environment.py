"""A command that spark-submit runs: its stderr, and how much Spark logs.

spark-submit joins the stderr of Python to its own stdout, where progress and errors would come before the JSON object;
here they take the way through the JVM that spark-submit is. That JVM has begun before our code, with Spark's own
settings for logs unless SPARK_CONF_DIR names others: INFO, by the thousand lines.
"""

import io
import os
import sys
from contextlib import suppress
from typing import Any, Final

GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
"""Environment variable by which spark-submit tells Python where its JVM is."""

SPARK_DEFAULT_LOG_CONFIG: Final = "log4j2-defaults.properties"


def is_submitted() -> bool:
    """Tell whether spark-submit runs this process."""
    return GATEWAY in os.environ


class _JvmStderr(io.TextIOBase):
    """The stderr of a JVM; ours, where that is gone."""

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 - a Java PrintStream
        self._stream = stream
        self._text = ""

    def write(self, text: str) -> int:
        self._text += text
        return len(text)

    def flush(self) -> None:
        text, self._text = self._text, ""
        if text:
            try:
                self._stream.print(text)
            except Exception:  # noqa: BLE001 - whatever py4j says of a JVM that is gone, the line is not to be lost
                with suppress(OSError):
                    os.write(2, text.encode())


def adapt_to_spark_submit() -> None:
    """Where spark-submit runs us: write stderr to stderr, and log what somebody must act on."""
    if not is_submitted() or isinstance(sys.stderr, _JvmStderr):
        return
    from pyspark import SparkContext  # noqa: PLC0415 - commands without Spark start without it

    SparkContext._ensure_initialized()  # noqa: SLF001 - the gateway, before a session
    jvm: Any = SparkContext._jvm  # noqa: SLF001 - as above
    sys.stderr = _JvmStderr(jvm.java.lang.System.err)
    with suppress(Exception):  # a Spark with other logs logs more, and runs the job all the same
        _restore_log_settings(jvm)
        _log_errors_only(jvm.org.apache.logging.log4j)


def _restore_log_settings(jvm: Any) -> None:  # noqa: ANN401 - py4j's
    """spark-submit undoes its settings for logs before it runs us; Spark's first line brings them back, over ours."""
    jvm.org.apache.spark.SparkConf().initializeForcefully(False, True)  # noqa: FBT003 - no shell, and in silence


def _log_errors_only(log4j: Any) -> None:  # noqa: ANN401 - a Java package
    """Unless somebody has chosen settings for logs."""
    if str(log4j.LogManager.getContext(False).getConfigLocation()).endswith(SPARK_DEFAULT_LOG_CONFIG):  # noqa: FBT003 - Java's
        log4j.core.config.Configurator.setAllLevels("", log4j.Level.ERROR)
