"""Files as vendors and guides publish them for Kafka's clients: accepted, or refused for the reason that holds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.adapters.brokers.admin_client import TLS, read_properties
from jobs.adapters.brokers.kerberos_mechanism import LOGIN
from jobs.core.errors import UsageError
from jobs.core.logs import LOGGER
from tests.jobs.support.zookeeper.guarded_zookeeper import Certificates

CONFLUENT_CLOUD = """\
# Required connection configs for Kafka producer, consumer, and admin
bootstrap.servers=pkc-1.europe-west1.gcp.confluent.cloud:9092
security.protocol=SASL_SSL
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username='KEY' password='SE;CRET';
sasl.mechanism=PLAIN
# Required for correctness in Apache Kafka clients prior to 2.6
client.dns.lookup=use_all_dns_ips
session.timeout.ms=45000
acks=all
schema.registry.url=https://psrc-1.europe-west3.gcp.confluent.cloud
basic.auth.credentials.source=USER_INFO
basic.auth.user.info=SR:SECRET
"""
LIBRDKAFKA = """\
bootstrap.servers=pkc-1.europe-west1.gcp.confluent.cloud:9092
security.protocol=SASL_SSL
sasl.mechanisms=PLAIN
sasl.username=KEY
sasl.password=SE;CRET
session.timeout.ms=45000
client.id=ccloud-python-client
"""
MSK_IAM = """\
security.protocol=SASL_SSL
sasl.mechanism=AWS_MSK_IAM
sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required;
sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler
"""
STRIMZI = """\
security.protocol=SSL
ssl.truststore.location={ca}
ssl.truststore.type=PEM
ssl.keystore.location={client}
ssl.keystore.type=PEM
ssl.enabled.protocols=TLSv1.2,TLSv1.3
ssl.protocol=TLSv1.3
"""
AIVEN = """\
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-256
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="KEY" password="SE;CRET";
ssl.endpoint.identification.algorithm=
ssl.truststore.type=PEM
ssl.truststore.location={ca}
key.serializer=org.apache.kafka.common.serialization.StringSerializer
"""
BITNAMI = """\
security.protocol=sasl_plaintext
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
    username="KEY" \\
    password="SE;CRET";
# left over from a file with TLS
ssl.truststore.certificates=-----BEGIN CERTIFICATE-----
ssl.cipher.suites=TLS_AES_256_GCM_SHA384
"""
CLOUDERA = """\
security.protocol=SASL_SSL
sasl.kerberos.service.name=kafka
sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true;
sasl.kerberos.ticket.renew.window.factor=0.8
ssl.truststore.location={ca}
ssl.truststore.type=PEM
"""
EVENT_HUBS = """\
bootstrap.servers=mynamespace.servicebus.windows.net:9093
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="$ConnectionString" \
password="Endpoint=sb://mynamespace.servicebus.windows.net/;SharedAccessKeyName=x;SharedAccessKey=y=";
request.timeout.ms=60000
metadata.max.age.ms=180000
connections.max.idle.ms=180000
"""
EVENT_HUBS_OAUTH = """\
security.protocol=SASL_SSL
sasl.mechanism=OAUTHBEARER
sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
sasl.login.callback.handler.class=CustomAuthenticateCallbackHandler
"""
PLAIN = """\
bootstrap.servers=localhost:9092
security.protocol=plaintext
group.id=test-consumer-group
reconnect.backoff.ms=50
retries=3
client.id=
"""
USER = ("KEY", "SE;CRET")


@pytest.fixture
def files(certificates: Certificates) -> dict[str, Path]:
    """Files that properties files name."""
    return {"ca": certificates.ca, "client": certificates.client}


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    LOGGER.addHandler(caplog.handler)
    yield caplog
    LOGGER.removeHandler(caplog.handler)


def fill(text: str, files: dict[str, Path]) -> str:
    for name, path in files.items():
        text = text.replace(f"{{{name}}}", str(path))
    return text


def read(folder: Path, text: str) -> dict[str, object]:
    path = folder / "client.properties"
    path.touch(0o600)
    path.write_text(text, encoding="utf-8")
    return read_properties(path)


ACCEPTED = {
    "Confluent Cloud": (
        CONFLUENT_CLOUD,
        ("SASL_SSL", "PLAIN", *USER),
        (
            "acks, basic.auth.credentials.source, basic.auth.user.info, bootstrap.servers, client.dns.lookup, "
            "schema.registry.url, session.timeout.ms"
        ),
    ),
    "librdkafka": (LIBRDKAFKA, ("SASL_SSL", "PLAIN", *USER), "bootstrap.servers, session.timeout.ms"),
    "Strimzi": (STRIMZI, ("SSL", None, None, None), "ssl.protocol"),
    "Aiven": (AIVEN, ("SASL_SSL", "SCRAM-SHA-256", *USER), "key.serializer"),
    "Bitnami": (
        BITNAMI,
        ("SASL_PLAINTEXT", "PLAIN", *USER),
        "ssl.cipher.suites, ssl.truststore.certificates",
    ),
    "Event Hubs": (
        EVENT_HUBS,
        (
            "SASL_SSL",
            "PLAIN",
            "$ConnectionString",
            "Endpoint=sb://mynamespace.servicebus.windows.net/;SharedAccessKeyName=x;SharedAccessKey=y=",
        ),
        "bootstrap.servers, connections.max.idle.ms, metadata.max.age.ms, request.timeout.ms",
    ),
    "plain": (
        PLAIN,
        ("PLAINTEXT", None, None, None),
        "bootstrap.servers, group.id, reconnect.backoff.ms, retries",
    ),
}


@pytest.mark.parametrize(("text", "login", "ignored"), ACCEPTED.values(), ids=ACCEPTED)
def test_accepted_files(  # noqa: PLR0913, PLR0917 - a table, and three fixtures
    tmp_path: Path,
    files: dict[str, Path],
    warnings: pytest.LogCaptureFixture,
    text: str,
    login: tuple[str | None, ...],
    ignored: str,
) -> None:
    """One warning names all keys that are ignored, also if the file is read again."""
    read(tmp_path, fill(text, files))
    settings = read(tmp_path, fill(text, files))

    names = ("security_protocol", "sasl_mechanism", "sasl_plain_username", "sasl_plain_password")
    assert tuple(settings.get(name) for name in names) == login
    assert (TLS in settings) == str(login[0]).endswith("SSL")
    assert [record.getMessage().rpartition(": ")[2] for record in warnings.records] == [ignored]


@pytest.mark.kerberos
def test_kerberos_is_the_default_mechanism(tmp_path: Path, files: dict[str, Path]) -> None:
    settings = read(tmp_path, fill(CLOUDERA, files))
    assert (settings["sasl_mechanism"], LOGIN in settings) == ("GSSAPI", True)


REFUSED = {
    "MSK IAM": (MSK_IAM, "sasl.mechanism is 'AWS_MSK_IAM'; it is one of PLAIN, "),
    "Event Hubs, OAuth": (EVENT_HUBS_OAUTH, "'sasl.login.callback.handler.class' changes how"),
    "certificates in the file": ("security.protocol=SSL\nssl.truststore.certificates=x", "or what it trusts"),
    "cipher suites": ("security.protocol=SSL\nssl.cipher.suites=x", "'ssl.cipher.suites' changes how"),
    "no check of certificates": (
        "security.protocol=ssl\nenable.ssl.certificate.verification=false",
        "'enable.ssl.certificate.verification' changes",
    ),
    "old TLS": ("security.protocol=SSL\nssl.enabled.protocols=TLSv1.1", "ssl.enabled.protocols is 'TLSv1.1'"),
    "a typing mistake": ("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.usernme=x", "'sasl.usernme'"),
    "no such protocol": ("security.protocol=TLS", "security.protocol is 'TLS'; it is one of PLAINTEXT, SSL"),
    "no value": ("sasl.username=", "'sasl.username' is not known or has no value"),
    "variable": (
        "# comment\n\nclient.id=\\\n  x\nsecurity.protocol = ${PROTOCOL}\n",
        "client.properties, line 5: security.protocol has the placeholder ${PROTOCOL}, which nothing replaces.",
    ),
    "provider": (
        "security.protocol=${env:PROTOCOL}",
        ", line 1: security.protocol has the placeholder ${env:PROTOCOL}",
    ),
    "password": ("sasl.password=${KAFKA_PASSWORD}", "sasl.password has the placeholder ${KAFKA_PASSWORD}"),
    "module": (
        'security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=P required username="${KAFKA_USER}";',
        ", line 3: sasl.jaas.config has the placeholder ${KAFKA_USER}, which",
    ),
    "other provider": (
        "config.providers=vault\nconfig.providers.vault.class=com.example.VaultConfigProvider\nclient.id=${vault:a:b}",
        "config.providers has vault; supported are EnvVarConfigProvider and FileConfigProvider",
    ),
}


@pytest.mark.parametrize(("text", "reason"), REFUSED.values(), ids=REFUSED)
def test_refused_files(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(tmp_path, text)
    assert reason in str(refused.value)


def test_providers_of_kafka_replace_placeholders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = tmp_path / "secrets.properties"
    secrets.touch(0o600)
    secrets.write_text("user=ann\npassword=a${b}c\n", encoding="utf-8")
    monkeypatch.setenv("MECHANISM", "SHA-512")
    text = f"""\
config.providers=env,file
config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
security.protocol=SASL_PLAINTEXT
sasl.mechanism=SCRAM-${{env:MECHANISM}}
sasl.username=${{file:{secrets}:user}}
sasl.password=${{file:{secrets}:password}}
"""
    assert read(tmp_path, text) == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "ann",
        "sasl_plain_password": "a${b}c",
    }
    secrets.chmod(0o644)
    with pytest.raises(UsageError, match="may have a password in it, and all users may read"):
        read(tmp_path, text)
    secrets.unlink()
    with pytest.raises(UsageError, match=r"secrets\.properties"):
        read(tmp_path, text)
