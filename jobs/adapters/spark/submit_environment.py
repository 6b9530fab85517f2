"""The environment of a command under spark-submit: its stderr and Spark's log level.

spark-submit merges Python's stderr into its own stdout, where progress and errors would precede the JSON object. So
they are written through the JVM of spark-submit. That JVM starts before our code, with Spark's own log settings unless
SPARK_CONF_DIR has others: level INFO, with thousands of lines.
"""

import io
import os
import sys
from contextlib import suppress
from typing import Any, Final

GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
"""Environment variable in which spark-submit passes the port of its JVM to Python."""

SPARK_DEFAULT_LOG_CONFIG: Final = "log4j2-defaults.properties"


def is_submitted() -> bool:
    """Return whether spark-submit runs this process."""
    return GATEWAY in os.environ


class _JvmStderr(io.TextIOBase):
    """A stream to the JVM's stderr, or to our own once the JVM has ended."""

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
            except Exception:  # noqa: BLE001 - py4j raises various errors once the JVM has ended, and the line must not be lost
                with suppress(OSError):
                    os.write(2, text.encode())


def adapt_to_spark_submit() -> None:
    """Under spark-submit, write stderr to the JVM's stderr and let Spark log errors only."""
    if not is_submitted() or isinstance(sys.stderr, _JvmStderr):
        return
    from pyspark import SparkContext  # noqa: PLC0415 - commands without Spark start without it

    SparkContext._ensure_initialized()  # noqa: SLF001 - the gateway, before a session
    jvm: Any = SparkContext._jvm  # noqa: SLF001 - as above
    sys.stderr = _JvmStderr(jvm.java.lang.System.err)
    with suppress(Exception):  # with another logging library Spark logs more, and the job still runs
        _restore_log_settings(jvm)
        _log_errors_only(jvm.org.apache.logging.log4j)


def _restore_log_settings(jvm: Any) -> None:  # noqa: ANN401 - py4j's
    """Initialize Spark's log settings now.

    spark-submit resets them before it runs us, and Spark's first log line would restore them and override ours.
    """
    jvm.org.apache.spark.SparkConf().initializeForcefully(False, True)  # noqa: FBT003 - not a shell, and silent


def _log_errors_only(log4j: Any) -> None:  # noqa: ANN401 - a Java package
    """Set level ERROR, unless the user has configured logging."""
    if str(log4j.LogManager.getContext(False).getConfigLocation()).endswith(SPARK_DEFAULT_LOG_CONFIG):  # noqa: FBT003 - Java's
        log4j.core.config.Configurator.setAllLevels("", log4j.Level.ERROR)
