"""The login configuration of a Java server: a JAAS file, and the system property that names it."""

from collections.abc import Sequence
from pathlib import Path


def with_jaas(command: Sequence[str], folder: Path, jaas: str) -> list[str]:
    """Return the command of a server whose Java reads this configuration."""
    file = folder / "jaas.conf"
    file.write_text(jaas, encoding="utf-8")
    java, *rest = command
    return [java, f"-Djava.security.auth.login.config={file}", *rest]
