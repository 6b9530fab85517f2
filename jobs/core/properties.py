"""Java properties files with connection and authentication settings, as Kafka reads them.

A file with a password, a private key or a command must not be readable by other users, nor writable by its group.
Otherwise it is refused.
"""

import os
import re
import stat
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from jobs.core.errors import UsageError
from jobs.core.text_decoding import read_text_file

HOST_NAMES: Final = "ssl.endpoint.identification.algorithm"
"""Whether certificates are checked for the host's name; in Java an empty value disables it."""
AUTHORITIES: Final = "ssl.ca.location"
PRIVATE_KEY: Final = "ssl.key.location"
CERTIFICATE: Final = "ssl.certificate.location"
"""A PEM file that contains its private key unless PRIVATE_KEY is set."""
TOKEN_COMMAND: Final = "sasl.oauthbearer.token.command"  # noqa: S105 - the name of a setting
"""A command that prints an OAuth token."""
KEYSTORE: Final = "ssl.keystore.location"
JAAS_CONFIG: Final = "sasl.jaas.config"
"""A login module of Java and its options, which may have a password."""
BEARER_TOKEN: Final = "bearer.token"  # noqa: S105 - the name of a setting
KEY_PASSWORD: Final = "ssl.key.password"  # noqa: S105 - the name of a setting

PROVIDERS: Final = "config.providers"
"""Names of providers that replace placeholders `${PROVIDER:[PATH:]KEY}` in values."""
_PLACEHOLDER: Final = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")
_UNRESOLVED: Final = re.compile(r"\$\{[^}]+\}|[\"'](\$\{[^}\"']+\})[\"']")
"""A placeholder in place of a value, or of a login module's option; within a longer text it may be a password's."""
_ENVIRONMENT, _FILES = "EnvVarConfigProvider", "FileConfigProvider"


def read_key_values(
    path: Path, file: str, known_keys: Collection[str], *, is_known: Callable[[str], bool] = lambda _: False
) -> dict[str, str]:
    """Read the file at `path`; raise UsageError for unknown keys and for a password readable by other users.

    `file` is the option and path, for messages, which never contain a value but a placeholder. `is_known`: which other
    keys are known, such as those with a name in them.
    """
    import javaproperties  # noqa: PLC0415 - it imports asyncio, which is slow and not needed without such a file

    try:
        text = read_text_file(path, file)
        written = {key: value.strip() for key, value in javaproperties.loads(text).items()}  # as Kafka's ConfigDef does
        mode = path.stat().st_mode
    except (OSError, javaproperties.InvalidUEscapeError) as error:
        raise UsageError(f"cannot read {file}: {_error_text(error)}") from None
    values = _resolved(written, file)
    for key, value in values.items():
        is_complete = value or key == HOST_NAMES or key not in known_keys
        if not is_complete or not (key in known_keys or key.startswith(PROVIDERS) or is_known(key)):
            raise UsageError(f"{file}: {key!r} is not known or has no value; known are {', '.join(known_keys)}")
        if key in known_keys:
            _refuse_placeholder(key, value, text, file)
    if any(_is_secret(key, value) for key, value in written.items()):
        refuse_shared(f"{file} has a password in it", path, mode)
    if TOKEN_COMMAND in values:
        refuse_shared(f"{file} has a command in it", path, mode)
    refuse_shared_key(values, file)
    return values


def _resolved(written: Mapping[str, str], file: str) -> dict[str, str]:
    """Replace placeholders by what providers have for them, as Kafka's ConfigTransformer does; leave unknown ones."""
    names = [name.strip() for name in written.get(PROVIDERS, "").split(",") if name.strip()]
    classes = {name: written.get(f"{PROVIDERS}.{name}.class", "").rpartition(".")[2] for name in names}
    for name, kind in classes.items():
        if kind not in {_ENVIRONMENT, _FILES} or any(key.startswith(f"{PROVIDERS}.{name}.param.") for key in written):
            raise UsageError(
                f"{file}: {PROVIDERS} has {name}; supported are {_ENVIRONMENT} and {_FILES}, without parameters"
            )

    def replaced(match: re.Match[str]) -> str:
        name, folder, key = match.groups()
        if classes.get(name) == _ENVIRONMENT:
            return os.environ.get(key, match[0])
        return _value_in(Path(folder or ""), key, file) or match[0] if classes.get(name) == _FILES else match[0]

    return {
        key: value if key.startswith(PROVIDERS) else _PLACEHOLDER.sub(replaced, value) for key, value in written.items()
    }


def _value_in(path: Path, key: str, file: str) -> str | None:
    import javaproperties  # noqa: PLC0415 - as above

    where = f"{file}: {PROVIDERS} {path}"
    value: str | None = javaproperties.loads(read_text_file(path, where)).get(key)
    refuse_shared(f"{where} may have a password in it", path, path.stat().st_mode)
    return value


def _refuse_placeholder(key: str, value: str, text: str, file: str) -> None:
    """Raise UsageError for a value, or a login module's option, that is a placeholder."""
    found = _UNRESOLVED.search(value) if key == JAAS_CONFIG else _UNRESOLVED.fullmatch(value)
    if found is not None:
        raise UsageError(
            f"{file}, line {_line_of(key, text)}: {key} has the placeholder {found[1] or found[0]}, which nothing "
            f"replaces. Kafka's clients replace ${{NAME:KEY}} alone, by the provider NAME of {PROVIDERS}: write the "
            f"value, or set {PROVIDERS}=env, {PROVIDERS}.env.class=org.apache.kafka.common.config.provider."
            f"{_ENVIRONMENT}, and the variable"
        )


def _line_of(key: str, text: str) -> int:
    """Return the number of the line on which a key's last entry begins."""
    import javaproperties  # noqa: PLC0415 - as above

    number, line = 1, 1
    for entry in javaproperties.parse(text):
        if getattr(entry, "key", None) == key:
            number = line
        line += len(entry.source.splitlines())
    return number


def on_executor(path: Path | None) -> Path | None:
    """Return the path at which a process of a Spark executor finds a file of the driver.

    That is the same path, or the executor's own folder if spark-submit has sent the file there with `--files`.
    """
    return path if path is None or path.exists() or not Path(path.name).exists() else Path(path.name)


def refuse_shared_key(values: Mapping[str, str], file: str) -> None:
    """Raise UsageError if other users may read the private key that the values of a file name, or its group change it.

    `file` is the option and path of the properties file, for messages.
    """
    is_pem_store = values.get("ssl.keystore.type", "").upper() == "PEM"
    named = KEYSTORE if is_pem_store else PRIVATE_KEY if PRIVATE_KEY in values else CERTIFICATE
    if named in values and KEY_PASSWORD not in values:
        own = Path(values[named])
        with suppress(OSError):  # reported when it is opened
            refuse_shared(f"{file}: {named} {own} has a private key in it", own, own.stat().st_mode)


def refuse_shared(subject: str, path: Path, mode: int) -> None:
    """Raise UsageError if other users may read or write a file with this mode, or its group may change it.

    They may execute it: workers of Spark's standalone clusters give mode 0711 to files sent by `--files`.
    """
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        raise UsageError(f"{subject}, and all users may read or change it: chmod o= {path}")
    if mode & stat.S_IWGRP:
        raise UsageError(f"{subject}, and its group may change it: chmod g-w {path}")


def _error_text(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return str(error.strerror)
    return "a \\u in it is not followed by four digits"


def _is_secret(key: str, value: str) -> bool:
    """Return whether a key's value is secret: a password or token, or a login module's options with a password.

    >>> [_is_secret(key, "x") for key in ("sasl.password", "ssl.key.password", "ssl.ca.location", "bearer.token")]
    [True, True, False, True]
    >>> [_is_secret("sasl.jaas.config", value) for value in ("M required password=x;", "M required keyTab=x;")]
    [True, False]
    """
    return key.endswith(("password", BEARER_TOKEN)) or (key == JAAS_CONFIG and "password" in value.lower())
