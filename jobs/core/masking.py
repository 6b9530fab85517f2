"""Masking of sensitive values: values of settings whose names contain words such as password or key.

Brokers return no value for settings that they know to be sensitive, but a topic's config or a plan may contain any
setting. The name decides, and in doubt a value is hidden. No topic config of Kafka's own has such a name.
"""

import json
import re
from typing import Any, Final

HIDDEN: Final = "(hidden)"

_SENSITIVE: Final = r"passw|secret|token|jaas|credential|key|cert|auth"
_PROTOCOL_SECRET: Final = re.compile(rf"\b\w*(?:{_SENSITIVE}|challenge|salt|sasl|scram)", re.IGNORECASE)
_NAME: Final = re.compile(_SENSITIVE, re.IGNORECASE)
_IN_ADDRESS: Final = re.compile(r"://[^\s/@:]*:[^\s@]*@")
_IN_TEXT: Final = re.compile(rf"([\w.\-]*(?:{_SENSITIVE})[\w.\-]*\s*(?:=| is now )\s*).*", re.IGNORECASE | re.DOTALL)


def is_sensitive(name: str) -> bool:
    """Return whether the value of a setting with this name must be hidden.

    >>> [is_sensitive(name) for name in ("ssl.key.password", "sasl.jaas.config", "retention.ms")]
    [True, True, False]
    """
    return bool(_NAME.search(name))


def mask(value: Any, name: str = "") -> Any:  # noqa: ANN401 - JSON
    """Replace the values of sensitive names, at any depth.

    >>> mask({"after": {"sasl.jaas.config": "x", "retention.ms": "1"}, "brokers": [1]})
    {'after': {'sasl.jaas.config': '(hidden)', 'retention.ms': '1'}, 'brokers': [1]}
    """
    if isinstance(value, dict):
        return {key: mask(item, key) for key, item in value.items()}
    if value is None or not is_sensitive(name):
        return [mask(item) for item in value] if isinstance(value, list) else value
    return HIDDEN


def truncate_secrets(text: str) -> str:
    """Cut a record of a library off at the first word that may introduce a secret of its protocol.

    >>> truncate_secrets("Sending request(xid=1): Auth(auth_type=0, scheme='digest', auth='user:x')")
    'Sending request(xid=1): (hidden)'
    """
    found = _PROTOCOL_SECRET.search(text)
    return text if found is None else text[: found.start()] + HIDDEN


def strip_passwords(text: str) -> str:
    """Hide user and password of addresses, such as a proxy's, in an error of a library.

    >>> strip_passwords("proxy http://me:x/y@proxy.example:3128/ failed for https://store:9000/a")
    'proxy http://(hidden)@proxy.example:3128/ failed for https://store:9000/a'
    """
    return _IN_ADDRESS.sub(f"://{HIDDEN}@", text)


def masked_json(text: str | None) -> str:
    """Mask the text of a JSON object; text that is not JSON is not shown at all.

    >>> masked_json('{"a.token": "x"}'), masked_json("a.token=x"), masked_json(None)
    ('{"a.token": "(hidden)"}', 'no JSON', '')
    """
    if text is None:
        return ""
    try:
        return json.dumps(mask(json.loads(text)), sort_keys=True)
    except ValueError:
        return "no JSON"


def masked_text(text: str | None) -> str:
    """Cut a sentence off before the value of a sensitive setting.

    >>> masked_text("topic t: sasl.jaas.config is now x y: altered"), masked_text("topic keys: broker 2 is gone")
    ('topic t: sasl.jaas.config is now (hidden)', 'topic keys: broker 2 is gone')
    """
    return _IN_TEXT.sub(rf"\g<1>{HIDDEN}", text or "")
