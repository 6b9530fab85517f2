"""A Kerberos login: the principal that Surveyor is, by a keytab or by a ticket cache.

Corresponds to `KerberosLogin` and Java's `Krb5LoginModule`, whose options are read from the properties files that
Kafka's own tools use. With a keytab, tickets are in memory only. They are obtained without `kinit`, and again when half
of their lifetime is over, so a command may run longer than a ticket is valid. A ticket cache is read for each
connection, and some other program renews it. The realm and its KDC come from krb5.conf (KRB5_CONFIG).
"""

import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from jobs.core.errors import MissingError, SurveyorError, UsageError
from jobs.core.jaas import JAAS_FILE, login_module
from jobs.core.properties import JAAS_CONFIG, refuse_shared

if TYPE_CHECKING:
    import gssapi
    from gssapi.raw.misc import GSSError

GSSAPI: Final = "GSSAPI"
SERVICE: Final = "sasl.kerberos.service.name"
KEYTAB: Final = "sasl.kerberos.keytab"
PRINCIPAL: Final = "sasl.kerberos.principal"
KERBEROS_KEYS: Final = (SERVICE, KEYTAB, PRINCIPAL, JAAS_CONFIG, JAAS_FILE)
"""Keys of a properties file; KEYTAB and PRINCIPAL are librdkafka's, in place of a login module."""

INSTALL: Final = "pip install 'kafka-surveyor[kerberos]'"

REFRESH_FACTOR: Final = 0.5
"""Part of a ticket's lifetime after which the next connection gets a new one, as in MIT's library."""

CLIENT_KEYTAB: Final = "KRB5_CLIENT_KTNAME"
TICKET_CACHE: Final = "KRB5CCNAME"
"""Variables of MIT's library: the keytab and the ticket cache of a process."""

_MODULE: Final = "Krb5LoginModule"
_KEYTAB_FORM: Final = "a keytab (useKeyTab=true, keyTab and principal) or a ticket cache (useTicketCache=true)"

_KRB5: Final = -1765328384
"""The first error code of MIT's library."""
_EXPIRED: Final = _KRB5 + 32
_NO_KEY: Final = _KRB5 + 181
_NO_TICKET: Final = frozenset({_KRB5 + 141, _KRB5 + 195})
"""With a keytab these mean that it has no key of the principal, as there is a cache in memory."""
_EXPLANATIONS: Final = {
    _KRB5 + 6: "the KDC does not know {the_principal}: have it created there, or correct the name{see_klist}",
    _KRB5 + 7: "the KDC does not know the service {service}: see sasl.kerberos.service.name and the host's name",
    _KRB5 + 14: "the KDC and {source} have no encryption type in common: export the keytab again",
    _KRB5 + 18: "{the_principal} is locked or expired in the KDC: ask the KDC's administrator",
    _KRB5 + 24: "the KDC does not accept the key in {source}: export the keytab of {principal} again",
    _KRB5 + 31: "the KDC does not accept the key in {source}: export the keytab of {principal} again",
    _EXPIRED: "the ticket in {source} has expired: run {kinit}",
    _KRB5 + 37: "the clocks of this machine and the KDC differ too much: synchronize them",
    _KRB5 + 134: "{principal} is not of the form NAME or NAME/HOST@REALM",
    _KRB5 + 141: "there is no ticket in {source}: run {kinit}",
    _KRB5 + 154: "krb5.conf has no KDC of the realm of {principal}: see KRB5_CONFIG",
    _KRB5 + 156: "no KDC of the realm of {principal} answers: see krb5.conf (KRB5_CONFIG) and the network",
    _NO_KEY: "{source} has no key of {principal}, or of another encryption type than the KDC: see {klist}",
    _KRB5 + 195: "there is no ticket cache {source}: run {kinit}",
    _KRB5 + 224: "neither {principal} nor krb5.conf names a realm: see KRB5_CONFIG",
}
"""Meanings of Kerberos' error codes for a user; krb5.h has their names (KRB5KDC_ERR_C_PRINCIPAL_UNKNOWN and on)."""

_DEFECTIVE_TOKEN: Final = 9
"""GSS_S_DEFECTIVE_TOKEN: the server's answer is not Kerberos, as of a ZooKeeper that is not configured for it."""
_NO_KERBEROS: Final = "{server} does not offer Kerberos: leave out the file that configures it, or correct the address"


class KerberosError(SurveyorError):
    """There is no ticket; a later attempt may get one."""


@dataclass(slots=True)
class _Tickets:
    credentials: "gssapi.Credentials"
    refresh_at: float
    expires_at: float
    """Both on the monotonic clock."""


class KerberosLogin:
    """A login, of one principal to one kind of service."""

    def __init__(self, service: str, keytab: Path | None, principal: str | None, ticket_cache: str | None) -> None:
        self.service, self.keytab, self.principal, self.ticket_cache = service, keytab, principal, ticket_cache
        self.monotonic: Callable[[], float] = time.monotonic
        self._lock = Lock()
        self._tickets: _Tickets | None = None
        self._failures: dict[str, str] = {}
        """By host, why the last attempt failed on this side; kafka-python and kazoo do not pass that on."""

    def credentials(self) -> "gssapi.Credentials":
        """Return credentials that are valid; raise KerberosError if there are none."""
        with self._lock:
            if self.keytab is None:
                return self._acquire({} if self.ticket_cache is None else {"ccache": self.ticket_cache})[0]
            tickets, now = self._tickets, self.monotonic()
            if tickets is not None and now < tickets.refresh_at:
                return tickets.credentials
            # a cache for each ticket, because connections that are being made still use the last one
            memory = f"MEMORY:surveyor-{uuid4().hex}"
            try:
                credentials, lifetime = self._acquire({"client_keytab": f"FILE:{self.keytab}", "ccache": memory})
            except KerberosError:
                if tickets is not None and self.monotonic() < tickets.expires_at:
                    return tickets.credentials  # refreshing failed, and the last ticket is still valid
                raise
            self._tickets = _Tickets(credentials, now + REFRESH_FACTOR * lifetime, now + lifetime)
            return credentials

    def context(self, host: str) -> "gssapi.SecurityContext":
        """Return the client's security context for the service on a host, which must authenticate itself, too."""
        import gssapi  # noqa: PLC0415 - an extra

        flags = gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.out_of_sequence_detection
        name = gssapi.Name(self._service_at(host), gssapi.NameType.hostbased_service)
        return gssapi.SecurityContext(
            name=name, creds=self.credentials(), usage="initiate", mech=gssapi.MechType.kerberos, flags=flags
        )

    def error(self, error: "GSSError", host: str | None = None) -> KerberosError:
        """Describe an error of GSSAPI in one line, and keep it for `failure`."""
        source = self.keytab or self.ticket_cache or "the default ticket cache"
        klist = f"`{shlex.join(['klist', '-ke', str(self.keytab)])}`"
        message = " ".join(str(error).split()).replace("{", "{{").replace("}", "}}")
        if error.maj_code >> 16 & 0xFF == _DEFECTIVE_TOKEN:
            message = _NO_KERBEROS
        reason = _EXPLANATIONS.get(self._code(error), message).format(
            principal=self.principal or "the principal",
            the_principal="the principal" if self.principal is None else f"the principal {self.principal}",
            service=self.service if host is None else self._service_at(host),
            source=source,
            kinit=self._kinit(),
            server=host or "the server",
            klist=klist,
            see_klist="" if self.keytab is None else f" (see {klist})",
        )
        cache = "the default ticket cache" if self.ticket_cache is None else f"the ticket cache {self.ticket_cache}"
        subject = f"with {cache}" if self.principal is None else f"of {self.principal}"
        message = f"Kerberos login {subject} failed: {reason}"
        if host is not None:
            self._failures[host] = message
        return KerberosError(message)

    def _kinit(self) -> str:
        """Return the command that renews the ticket cache."""
        cache = [] if self.ticket_cache is None else ["-c", self.ticket_cache]
        return f"`{shlex.join(['kinit', *cache, self.principal or 'PRINCIPAL'])}`"

    def succeeded(self, host: str) -> None:
        self._failures.pop(host, None)

    def failure(self, hosts: Iterable[str]) -> str | None:
        """Return why the last attempt at one of these hosts failed on this side, None if none did."""
        return next((self._failures[host] for host in hosts if host in self._failures), None)

    def _code(self, error: "GSSError") -> int:
        """Return the error code of MIT's library, as in krb5.h."""
        import gssapi  # noqa: PLC0415 - an extra

        if isinstance(error, gssapi.exceptions.ExpiredCredentialsError):
            return _EXPIRED
        code = int(error.min_code)
        code -= 1 << 32 if code >> 31 else 0
        return _NO_KEY if self.keytab is not None and code in _NO_TICKET else code

    def _service_at(self, host: str) -> str:
        return f"{self.service}@{host}"

    def _acquire(self, store: dict[bytes | str, bytes | str]) -> tuple["gssapi.Credentials", float]:
        """Return new credentials, and the seconds for which they are valid."""
        import gssapi  # noqa: PLC0415 - an extra

        try:
            name = None if self.principal is None else gssapi.Name(self.principal, gssapi.NameType.kerberos_principal)
            credentials = gssapi.Credentials(
                name=name, mechs=[gssapi.MechType.kerberos], usage="initiate", store=store or None
            )
            lifetime = float(credentials.lifetime)
        except gssapi.raw.misc.GSSError as error:
            raise self.error(error) from None
        return credentials, lifetime


def ticket_failure(environment: Mapping[str, str]) -> str | None:
    """Return why MIT's library has no ticket for a process with these environment variables, None if it has one.

    Without the extra only the keytab file is checked.
    """
    keytab, ticket_cache = environment.get(CLIENT_KEYTAB), environment.get(TICKET_CACHE)
    path = None if keytab is None else Path(keytab.removeprefix("FILE:"))
    if path is not None:
        try:
            path.open("rb").close()
        except OSError as error:
            return f"the keytab {path} ({CLIENT_KEYTAB}) cannot be read: {error.strerror}"
    try:
        KerberosLogin("", path, None, None if path is not None else ticket_cache).credentials()
    except KerberosError as error:
        return str(error) if path is not None else f"without a keytab ({CLIENT_KEYTAB}) the {error}"
    except (ImportError, OSError):  # the extra is not installed
        source = f"the keytab {path}" if path is not None else f"the ticket cache {ticket_cache or ''}".rstrip()
        return f"{source} gives no ticket"
    return None


def login_of(values: Mapping[str, str], file: str, section: str, service: str) -> KerberosLogin:
    """Return the login of a properties file, `file` in messages.

    `section` is a section of a JAAS file, and `service` the service's name unless the file sets it. Raise UsageError
    for a file that does not name the user, and MissingError without the library. There is one login for each
    principal in a process, so that connections share its tickets.
    """
    module = login_module(values, file, section)
    options: Mapping[str, str] = {}
    if module is not None:
        if module.simple_name != _MODULE:
            raise UsageError(f"{file}: GSSAPI needs the login module {_MODULE}, not {module.name}")
        options = module.options
    keytab, ticket_cache = values.get(KEYTAB), None
    if keytab is None and _is_true(options, "useKeyTab"):
        keytab = options.get("keyTab")
    principal = values.get(PRINCIPAL, options.get("principal"))
    if keytab is None:
        if not _is_true(options, "useTicketCache"):
            raise UsageError(
                f"{file}: GSSAPI needs {KEYTAB} and {PRINCIPAL}, or {JAAS_CONFIG} with {_MODULE} and {_KEYTAB_FORM}"
            )
        ticket_cache = options.get("ticketCache")
    elif principal is None:
        raise UsageError(f"{file}: a keytab needs the principal that it is for: {PRINCIPAL}, or principal of {_MODULE}")
    path = None if keytab is None else _keytab(keytab, file)
    _require_library(file)
    return _login(values.get(SERVICE, options.get("serviceName", service)), path, principal, ticket_cache)


def _is_true(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "false").lower() == "true"


def _keytab(value: str, file: str) -> Path:
    """Check the keytab before the library does, whose errors do not name it."""
    path = Path(value.removeprefix("FILE:").removeprefix("file:"))
    source = f"{file}: the keytab {path}"
    try:
        with path.open("rb"):
            mode = path.stat().st_mode
    except OSError as error:
        raise UsageError(f"{source} cannot be read: {error.strerror}") from None
    refuse_shared(f"{source} has keys in it", path, mode)
    return path.absolute()


def _require_library(file: str) -> None:
    try:
        import gssapi  # noqa: F401, PLC0415 - an extra
    except ModuleNotFoundError:
        raise MissingError(f"{file}: GSSAPI needs one more package: {INSTALL}") from None
    except (ImportError, OSError) as error:
        raise MissingError(
            f"{file}: GSSAPI needs MIT's Kerberos library (on Debian: apt-get install libgssapi-krb5-2): {error}"
        ) from None


@cache
def _login(service: str, keytab: Path | None, principal: str | None, ticket_cache: str | None) -> KerberosLogin:
    return KerberosLogin(service, keytab, principal, ticket_cache)
