"""TLS of the source and the sink: options, the driver's environment, executors, certificates that are refused."""

import json
import pickle
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lockstep.client.blocking import Addresses
from lockstep.pipeline.errors import OptionError
from lockstep.pipeline.jobs.publish import SentCount
from lockstep.pipeline.options import Use, parse_options
from lockstep.pipeline.sink.ordering import ordered
from lockstep.pipeline.source.planning import addresses_of
from lockstep.protocol.signature import Credentials
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.tls.options import TlsOptions
from tests.commands import SCRIPTS, ForkedBroker, Lockstep
from tests.integration.harness.certificates import Files, make_files
from tests.pipeline.topics import BORN_MS, plain_record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC, EVENTS = "orders", "events"
GIVEN = {"nameServer": "mq:9876", "topic": TOPIC}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def broker(files: Files) -> Iterator[ForkedBroker]:
    """One that closes connections without TLS."""
    topics = [word for name in (TOPIC, EVENTS) for word in ("--topic", f"{name}:2")]
    with ForkedBroker(*topics, "--tls", "enforcing", "--tls-cert", files.server) as running:
        yield running


def test_options(monkeypatch: pytest.MonkeyPatch, files: Files) -> None:
    """They go with what an executor gets; without any of them those of the driver's environment do."""
    given = {"tls.ca": files.ca, "tls.cert": files.client}
    for use in Use:
        options = parse_options({**GIVEN, **given}, use)
        assert pickle.loads(pickle.dumps(addresses_of(options))).tls == TlsOptions(files.ca, files.client)
        assert parse_options({**GIVEN, "tls": "unverified"}, use).tls == TlsOptions(verify=False)
        assert parse_options({**GIVEN, **given, "tls": "off"}, use).tls is None
        assert parse_options(GIVEN, use).tls is None
    monkeypatch.setenv("LOCKSTEP_TLS_CA", files.ca)
    assert addresses_of(parse_options(GIVEN, Use.READ)).tls == TlsOptions(files.ca)
    assert parse_options({**GIVEN, "tls": "off"}, Use.READ).tls is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"tls": "perhaps"}, "option tls: 'perhaps' cannot be: it is none of them; allowed: on, unverified"),
        ({"tls.ca": "/nowhere/ca.pem"}, "tls: /nowhere/ca.pem is no file of certificates: No such file"),
        ({"tls.key": "/nowhere/key.pem"}, "tls: the key /nowhere/key.pem has no certificate"),
    ],
)
def test_options_that_cannot_be(given: dict[str, str], says: str) -> None:
    """On the driver, before a task runs; in one line."""
    with pytest.raises(OptionError, match=says) as caught:
        parse_options({**GIVEN, **given}, Use.READ)
    assert "\n" not in str(caught.value)


def test_a_client_over_tls(broker: ForkedBroker, files: Files) -> None:
    """Sends and pulls, small and of a megabyte, to a broker that verifies nothing of its clients."""
    with Addresses((broker.name_server,), tls=TlsOptions(files.ca)).open() as client:
        (queue, _) = client.writable_queues(TOPIC)
        records = [plain_record(0, n)._replace(body=b"%d" % n * size) for n, size in enumerate([1, 1_000_000, 1])]
        assert [client.send(queue, record, BORN_MS).queue_offset for record in records] == [0, 1, 2]
        assert client.max_offset(queue) == 3
        assert client.agrees(queue)
        offset, bodies = 0, b""
        while offset < 3:
            reply = client.pull(queue, offset, 32)
            offset, bodies = reply.next_begin_offset, bodies + reply.body
        assert all(record.body in bodies for record in records)


def test_the_count_of_publish(broker: ForkedBroker, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """`lockstep-pipeline` takes TLS from the environment."""
    monkeypatch.setenv("LOCKSTEP_TLS_CA", files.ca)
    addresses = Addresses((broker.name_server,), tls=TlsOptions(files.ca))
    with SentCount(broker.name_server, TOPIC) as count, addresses.open() as client:
        client.send(client.writable_queues(TOPIC)[1], plain_record(0, 0), BORN_MS)
        assert count.text() == "1 sent"


@pytest.mark.parametrize(
    ("tls", "says"),
    [
        ("other_ca", "TLS: the certificate is not accepted: unable to get local issuer certificate"),
        ("system", "TLS: the certificate is not accepted"),
        ("none", "perhaps it wants TLS"),
    ],
)
def test_a_client_that_is_refused(broker: ForkedBroker, files: Files, tls: str, says: str) -> None:
    """Another signer, the signers of the system, no TLS: one line with the cause, and nothing is sent."""
    options = {"other_ca": TlsOptions(files.other_ca), "system": TlsOptions(), "none": None}[tls]
    addresses = Addresses((broker.name_server,), retries=0, tls=options)
    with addresses.open() as client, pytest.raises(RemotingError, match=says) as caught:
        client.topics()
    assert "\n" not in str(caught.value)


def test_a_broker_without_tls(files: Files) -> None:
    """The client says that the peer perhaps does not speak TLS."""
    tls = TlsOptions(files.ca)
    with ForkedBroker() as plain, Addresses((plain.name_server,), retries=0, tls=tls).open() as client:  # noqa: SIM117
        with pytest.raises(RemotingError, match="perhaps it does not speak TLS"):
            client.topics()


def test_a_client_shows_its_certificate(files: Files) -> None:
    """Where clients must have one: with it a client is served, without it the error names the cause."""
    options = ("--topic", f"{TOPIC}:1", "--tls", "enforcing", "--tls-cert", files.server, "--tls-client-ca", files.ca)
    with ForkedBroker(*options) as broker:
        servers = (broker.name_server,)
        with Addresses(servers, tls=TlsOptions(files.ca, files.client)).open() as client:
            assert len(client.writable_queues(TOPIC)) == 1
        without = Addresses(servers, retries=0, tls=TlsOptions(files.ca))
        with without.open() as client, pytest.raises(RemotingError, match="certificate required"):
            client.topics()


@pytest.mark.usefixtures("java")
def test_a_command_with_an_account(files: Files, tmp_path: Path) -> None:
    """Options of `lockstep-pipeline` win over the environment, and reach the tasks; no output has the secret."""
    (tmp_path / "plain_acl.yml").write_text(
        "accounts: [{accessKey: account1, secretKey: hidden-words, topicPerms: [orders=PUB|SUB],"
        " defaultGroupPerm: PUB|SUB}]\n"
    )
    (tmp_path / "rows.csv").write_text("k,at\na,1\na,2\nb,1\n")
    acl = ("--acl", str(tmp_path / "plain_acl.yml"), "--acl-checks", "strict", "--topic", f"{TOPIC}:2")
    tls = ("--tls", "enforcing", "--tls-cert", files.server, "--tls-client-ca", files.ca)
    account = ("--access-key", "account1", "--secret-key", "hidden-words")
    with ForkedBroker(*acl, *tls, folder=tmp_path) as broker:
        asked = ("publish", str(tmp_path / "rows.csv"), "-n", broker.name_server, "--topic", TOPIC, "--key", "k")
        environment = Lockstep(broker.name_server).environment | {
            "LOCKSTEP_TLS": "off",
            "LOCKSTEP_ACCESS_KEY": "nobody-here",
        }
        options = (*account, "--tls-ca", files.ca, "--tls-cert", files.client)
        done = subprocess.run(
            [str(SCRIPTS / "lockstep-pipeline"), *options, *asked, "--order-by", "at", "-o", "json", "--verbose"],
            capture_output=True, text=True, timeout=600, env=environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == [{"topic": TOPIC, "events": 3}]
        assert "hidden-words" not in done.stdout + done.stderr
        credentials = Credentials("account1", "hidden-words")
        with Addresses(
            (broker.name_server,), credentials=credentials, tls=TlsOptions(files.ca, files.client)
        ).open() as c:
            assert sum(c.max_offset(queue) for queue in c.writable_queues(TOPIC)) == 3


def test_spark_over_tls(spark: "SparkSession", broker: ForkedBroker, files: Files, tmp_path: Path) -> None:
    """A sink, a source and a stream, whose executors connect over TLS; another signer is one line of Spark's error."""
    server = {"nameServer": broker.name_server, "tls.ca": files.ca}
    rows = spark.range(500).selectExpr("id", "cast(id as string) as value", "concat('k', id % 7) as shardingKey")
    writer = ordered(rows, "shardingKey", "id").write.format("lockstep").options(**server)
    writer.options(topic=EVENTS, orderBy="id").mode("append").save()
    reads = {**server, "subscribe": EVENTS, "startingOffsets": "earliest"}
    batch = spark.read.format("lockstep").options(**reads)
    stream = spark.readStream.format("lockstep").options(**reads).load().writeStream.format("memory")
    query = stream.queryName("over_tls").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    for frame in (batch.load(), spark.table("over_tls")):
        queues: dict[int, list[int]] = {}
        for row in frame.orderBy("queueId", "offset").collect():
            queues.setdefault(row.queueId, []).append(int(row.value))
        assert sorted(value for values in queues.values() for value in values) == list(range(500))
        by_key = [[v for v in values if v % 7 == key] for values in queues.values() for key in range(7)]
        assert all(values == sorted(values) for values in by_key)
    with pytest.raises(Exception, match="the certificate is not accepted") as caught:
        batch.option("tls.ca", files.other_ca).load().count()
    assert "blocking.py" not in str(caught.value)
