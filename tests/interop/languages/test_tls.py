"""TLS with the other side unmodified: Java's client on our broker, our client on Apache's."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.client import Credentials, Message, Producer
from lockstep.remoting.tls.options import TlsOptions
from tests.integration.harness.certificates import Files, make_files
from tests.integration.harness.processes import PATIENT_PRODUCER, until
from tests.interop.harness.drivers import Drivers
from tests.interop.harness.installed import version_of
from tests.interop.harness.servers import Server, lockstep_server
from tests.interop.harness.table import RowMaker
from tests.interop.languages.test_acl import ADMIN, RULES
from tests.interop.stories.mqadmin_story import Admin, signing_admin
from tests.interop.stories.other_story import OtherStory, cpp_story, go_story, node_story

pytestmark = pytest.mark.timeout(300)
MESSAGES = 40
TLS = {"tls.enable": "true"}  # Java's client believes any server by default


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return make_files(tmp_path)


@pytest.fixture
def broker(tmp_path: Path, files: Files) -> Iterator[Server]:
    """Our broker, which serves TLS alone."""
    tls = ("--tls", "enforcing", "--tls-cert", files.server)
    with lockstep_server(tmp_path, *tls, "--topic", "orders:4", "--log-level", "info") as server:
        yield server


def trusting(ca: str) -> dict[str, str]:
    """Properties of a Java client that accepts servers which `ca` signs."""
    return {**TLS, "tls.test.mode.enable": "false", "tls.client.authServer": "true", "tls.client.trustCertPath": ca}


@pytest.mark.parametrize("checks", [False, True], ids=["any server", "a server of its signer"])
async def test_java_over_tls(
    broker: Server, drivers: Drivers, interop_row: RowMaker, files: Files, checks: bool
) -> None:
    """An ordered producer and an ordered consumer with -Dtls.enable=true, which believe any server, or check it."""
    scenario = "TLS: ordered" + (", the server is checked" if checks else "")
    row = interop_row("Java", version_of("java", "rocketmq-client"), "Java -> Lockstep", scenario)
    fixed: dict[str, Any] = {"name_server": broker.name_server, "topic": "orders"}
    fixed["properties"] = trusting(files.ca) if checks else TLS
    producer = drivers.java("OrderedProducer", **fixed, messages=MESSAGES, keys=4)
    assert await producer.ended(60) == 0, producer.tail()
    consumer = drivers.java("OrderlyConsumer", **fixed, group="workers")
    await consumer.until(lambda: len(consumer.of("handled")) >= MESSAGES, "all messages are handled", 60)
    assert {event["seq"] for event in consumer.of("handled")} == set(range(MESSAGES))
    row.messages = MESSAGES


@pytest.mark.parametrize(
    ("ca", "java_says", "we_log"),
    [
        ("", "wait response on the channel|send request to|No route info for this topic", "tls_required"),
        ("other_ca", "unable to find valid certification path to requested target", "tls_handshake_failed"),
    ],
    ids=["no TLS", "another signer"],
)
async def test_java_is_refused(
    broker: Server, drivers: Drivers, interop_row: RowMaker, files: Files, ca: str, java_says: str, we_log: str
) -> None:
    """Another signer is named as the cause. Without TLS Java only misses an answer, and the broker's log says why."""
    interop_row("Java", version_of("java", "rocketmq-client"), "Java -> Lockstep", f"TLS: {we_log}")
    fixed: dict[str, Any] = {"name_server": broker.name_server, "topic": "orders", "messages": 1}
    said = ""
    for _ in range(5):  # as in `told`, below
        producer = drivers.java("OrderedProducer", properties=trusting(getattr(files, ca)) if ca else {}, **fixed)
        assert await producer.ended(60) == 1
        said += producer.stderr()
        if re.search(java_says, said):
            break
    assert re.search(java_says, said), said
    await until(lambda: we_log in broker.log(), "the broker logs it")


WITHOUT_TLS: dict[str, tuple[Callable[[Drivers, Server, RowMaker], OtherStory], str, str, dict[str, Any]]] = {
    "Go": (go_story, "produce", "route info not found", {}),
    "Node": (node_story, "produce.js", "The socket was closed|ECONNRESET|EPIPE", {}),
    "C++": (cpp_story, "produce.py", "No route info of this topic", {"tries": 1}),  # each takes it a minute
}


@pytest.mark.parametrize(("make", "script", "says", "options"), WITHOUT_TLS.values(), ids=WITHOUT_TLS)
async def test_clients_that_do_not_speak_tls(
    broker: Server,
    drivers: Drivers,
    interop_row: RowMaker,
    make: Callable[[Drivers, Server, RowMaker], OtherStory],
    script: str,
    says: str,
    options: dict[str, Any],
) -> None:
    """They end with an error; only the broker's log names the cause."""
    story = make(drivers, broker, interop_row)
    story.row("TLS: it has none")
    producer = story.start(script, "orders", "producers", messages=1, **options)
    assert await producer.ended(150) == 1
    assert re.search(says, str(producer.look()) + producer.stderr()), producer.tail()
    await until(lambda: "tls_required" in broker.log(), "the broker logs it")


async def test_mqadmin_with_tls_and_an_account(
    drivers: Drivers, interop_row: RowMaker, tmp_path: Path, files: Files
) -> None:
    """Both at once, to an enforcing broker with strict checks; a wrong key and another signer are one line each."""
    interop_row("mqadmin", version_of("java", "rocketmq-tools"), "mqadmin -> Lockstep", "TLS and ACL at once")
    (tmp_path / "plain_acl.yml").write_text(RULES)
    acl = ("--acl", str(tmp_path / "plain_acl.yml"), "--acl-checks", "strict")
    wrong = Credentials(ADMIN.access_key, "secret-0000")
    with lockstep_server(tmp_path, *acl, "--tls", "enforcing", "--tls-cert", files.server) as server:
        for account, ca, says in (
            (wrong, files.ca, "Check signature failed for accessKey=adminadmin"),
            (ADMIN, files.other_ca, "unable to find valid certification path to requested target"),
            (ADMIN, files.ca, "success"),
        ):
            admin = await signing_admin(drivers, server, account, trusting(ca))
            answer = await told(admin, f"updateTopic -b {server.broker} -t made -r 1 -w 1", says)
            assert ("success" in answer) is (says == "success")
        answer = str(await admin.ask("topicRoute -t made"))
        assert server.broker in answer, answer


async def told(admin: Admin, words: str, says: str) -> str:
    """The answer that says so: Netty names a failed handshake only to a request that was written before it."""
    answers = []
    for _ in range(5):
        answers.append(str(await admin.ask(words)))
        if says in answers[-1]:
            return answers[-1]
        assert "success" not in answers[-1]
    raise AssertionError(answers)


async def test_our_producer_over_tls_to_apache(apache: Server, interop_row: RowMaker) -> None:
    """Apache's servers speak TLS on their ports, with a certificate that they make themselves."""
    row = interop_row("Python", "0.1.0", "Lockstep -> Apache", "TLS: sends")
    topic = await apache.create_topic("over-tls", 2)
    async with Producer(
        "tls", name_server=apache.name_server, config=PATIENT_PRODUCER, tls=TlsOptions(verify=False)
    ) as producer:
        results = [await producer.send(Message(topic, b"%d" % i), sharding_key="one") for i in range(10)]
    assert [result.queue_offset for result in results] == list(range(10))
    row.messages = 10
