"""Configurations of Java's login modules (JAAS), as in `sasl.jaas.config` and in the files that JVMs are given.

Corresponds to `JaasConfig` and `JaasContext`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from jobs.core.errors import UsageError
from jobs.core.properties import JAAS_CONFIG, refuse_shared
from jobs.core.text_decoding import read_text_file

JAAS_FILE: Final = "java.security.auth.login.config"
"""The path of a file with sections of login modules; in Java it is a system property."""

_TOKEN: Final = re.compile(
    r"""
    \s+ | //[^\n]* | \#[^\n]* | /\*.*?\*/
    | (?P<mark>["'])(?P<quoted>(?:(?!(?P=mark))[^\\]|\\.)*)(?P=mark) | (?P<word>[^\s={};"']+) | (?P<sign>[={};])
    """,
    re.VERBOSE | re.DOTALL,
)
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})


class _Token(NamedTuple):
    text: str
    is_sign: bool = False
    """False for a value in quotes, whatever it is."""


_OPEN, _CLOSE, _END, _EQUALS = (_Token(sign, is_sign=True) for sign in "{};=")


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module's class name, and its options."""

    name: str
    options: Mapping[str, str] = field(repr=False)
    """They may have a password."""

    @property
    def simple_name(self) -> str:
        return self.name.rpartition(".")[2]


def login_module(values: Mapping[str, str], file: str, section: str) -> LoginModule | None:
    """Return the login module that a properties file sets or names, None if it does neither.

    `file` is the option and path of the properties file, for messages; `section` is the part of a JAAS file that Java
    reads. Raise UsageError for a configuration that Java refuses too. Messages contain no option's value.
    """
    if JAAS_CONFIG in values:
        return _module(values[JAAS_CONFIG], f"{file}: {JAAS_CONFIG}")
    if JAAS_FILE not in values:
        return None
    path = Path(values[JAAS_FILE])
    sections = _sections(read_text_file(path, f"{file}: {JAAS_FILE} {path}"), f"{file}: {JAAS_FILE} {path}")
    if section not in sections:
        names = ", ".join(sections) or "none"
        raise UsageError(f"{file}: {JAAS_FILE} {path} has no section {section}; it has {names}")
    module = sections[section]
    if "password" in module.options:
        refuse_shared(f"{file}: {JAAS_FILE} {path} has a password in it", path, path.stat().st_mode)
    return module


def _module(text: str, where: str) -> LoginModule:
    tokens = list(_tokens(text, where))
    if not tokens or tokens[-1] != _END:
        raise UsageError(f"{where} does not end with a semicolon")
    return _parsed(tokens[:-1], where)


def _sections(text: str, where: str) -> dict[str, LoginModule]:
    """Return the first login module of each section: `NAME { MODULE FLAG OPTION=VALUE ...; };`."""
    sections: dict[str, LoginModule] = {}
    tokens = list(_tokens(text, where))
    while tokens:
        if _CLOSE not in tokens or tokens[1] != _OPEN:
            raise UsageError(f"{where} is not of the form NAME {{ MODULE required OPTION=VALUE ...; }};")
        end = tokens.index(_CLOSE)
        name, content = tokens[0].text, tokens[2:end]
        if _END not in content:
            raise UsageError(f"{where}: the login module of {name} does not end with a semicolon")
        sections[name] = _parsed(content[: content.index(_END)], f"{where}: {name}")
        tokens = tokens[end + 1 :]
        if tokens[:1] == [_END]:
            tokens = tokens[1:]
    return sections


def _parsed(tokens: list[_Token], where: str) -> LoginModule:
    name, flag = (tokens[index].text if index < len(tokens) else "" for index in (0, 1))
    if flag.lower() not in _FLAGS:
        raise UsageError(f"{where} is not of the form MODULE required OPTION=VALUE ...;")
    rest = tokens[2:]
    if len(rest) % 3 or rest[1::3] != [_EQUALS] * (len(rest) // 3):
        raise UsageError(f"{where}: an option of {name} is not of the form OPTION=VALUE")
    return LoginModule(name, {key.text: value.text for key, value in zip(rest[::3], rest[2::3], strict=True)})


def _tokens(text: str, where: str) -> Iterator[_Token]:
    r"""Split into words, values without their quotes, and signs; leave out comments.

    >>> [token.text for token in _tokens('a.Module required x="1 \\"2"; // end', "")]
    ['a.Module', 'required', 'x', '=', '1 "2', ';']
    >>> [token.text for token in _tokens("user='a b' password='c;d\"';", "")]
    ['user', '=', 'a b', 'password', '=', 'c;d"', ';']
    """
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise UsageError(f"{where} has a quotation mark without its second one")
        at = match.end()
        if match["quoted"] is not None:
            yield _Token(re.sub(r"\\(.)", r"\1", match["quoted"]))
        elif match["word"] or match["sign"]:
            yield _Token(match[0], is_sign=bool(match["sign"]))
