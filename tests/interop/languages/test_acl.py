"""Unmodified clients with accounts: Java's AclClientRPCHook, and mqadmin with its tools.yml."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.client import Credentials
from tests.interop.harness.drivers import Driver, Drivers
from tests.interop.harness.installed import version_of
from tests.interop.harness.servers import Server, lockstep_server
from tests.interop.harness.table import RowMaker
from tests.interop.stories.mqadmin_story import signing_admin

pytestmark = pytest.mark.timeout(300)
RULES = """\
globalWhiteRemoteAddresses: []
accounts:
- accessKey: adminadmin
  secretKey: secret-admin
  admin: true
- accessKey: account1
  secretKey: secret-1234
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - orders=PUB|SUB
  groupPerms:
  - workers=SUB
  - producers=PUB
"""
ACCOUNT: dict[str, Any] = {"access_key": "account1", "secret_key": "secret-1234"}
ADMIN = Credentials("adminadmin", "secret-admin")
MESSAGES = 40


@pytest.fixture(params=["rocketmq", "strict"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """Our broker with ACL, in both modes."""
    rules = tmp_path / "plain_acl.yml"
    rules.write_text(RULES)
    options = ("--acl", str(rules), "--acl-checks", request.param, "--topic", "orders:4", "--topic", "other:1")
    with lockstep_server(tmp_path, *options) as server:
        yield server


def produce(drivers: Drivers, server: Server, **arguments: Any) -> Driver:
    fixed: dict[str, Any] = {"topic": "orders", "producer_group": "producers", "messages": MESSAGES, "keys": 4}
    return drivers.java("OrderedProducer", name_server=server.name_server, **{**fixed, **arguments})


async def test_java_with_an_account(broker: Server, drivers: Drivers, interop_row: RowMaker) -> None:
    """Java's hook signs: an ordered producer and an ordered consumer work, under both modes."""
    row = interop_row("Java", version_of("java", "rocketmq-client"), "Java -> Lockstep", "ACL: ordered, signed")
    producer = produce(drivers, broker, **ACCOUNT)
    assert await producer.ended(60) == 0, producer.tail()
    consumer = drivers.java(
        "OrderlyConsumer", name_server=broker.name_server, topic="orders", group="workers", **ACCOUNT
    )
    await consumer.until(lambda: len(consumer.of("handled")) >= MESSAGES, "all messages are handled", 60)
    row.messages = MESSAGES
    assert {event["seq"] for event in consumer.of("handled")} == set(range(MESSAGES))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "No accessKey is configured"),
        ({**ACCOUNT, "secret_key": "secret-0000"}, "Check signature failed for accessKey=account1"),
        ({**ACCOUNT, "topic": "other"}, "No default permission for topic:other"),
    ],
)
async def test_java_is_refused(
    broker: Server, drivers: Drivers, interop_row: RowMaker, arguments: dict[str, str], says: str
) -> None:
    """A wrong key, none, or a topic of another: Java's error has RocketMQ's words."""
    interop_row("Java", version_of("java", "rocketmq-client"), "Java -> Lockstep", f"ACL: {says.split()[0]} ...")
    producer = produce(drivers, broker, **arguments)
    assert await producer.ended(60) != 0
    assert says in producer.tail() or says in str(producer.look())


@pytest.mark.parametrize("account", [ADMIN, Credentials("account1", "secret-1234")], ids=["admin", "account"])
async def test_mqadmin(
    broker: Server, drivers: Drivers, interop_row: RowMaker, tmp_path: Path, account: Credentials
) -> None:
    """mqadmin signs with tools.yml: an administrator changes the rules, another account makes no topic."""
    interop_row("mqadmin", version_of("java", "rocketmq-tools"), "mqadmin -> Lockstep", "ACL: the rules")
    admin = await signing_admin(drivers, broker, account)

    async def ask(words: str) -> str:
        return str(await admin.ask(f"{words} -b {broker.broker}"))

    may = account is ADMIN
    told = await ask("updateTopic -t made -r 1 -w 1")
    assert ("success" in told) is may, told
    assert ("Need admin permission for request code=17" in told) is not may
    if not may:
        return
    told = await ask("updateAclConfig -a account9 -s secret-9999 -t made=PUB,orders=DENY -m false")
    assert "success" in told, told
    rules = tmp_path / "plain_acl.yml"
    assert "account9" in rules.read_text()
    assert "made=PUB" in rules.read_text()
    told = await ask("clusterAclConfigVersion")
    assert "plain_acl.yml" in told, told
    told = await ask("updateGlobalWhiteAddr -g 10.0.0.1,10.2.*.*")
    assert "success" in told, told
    told = await ask("deleteAclConfig -a account9")
    assert "success" in told, told
    assert "account9" not in rules.read_text()
    assert "10.2.*.*" in rules.read_text()


async def test_mqadmin_with_a_wrong_key(broker: Server, drivers: Drivers, interop_row: RowMaker) -> None:
    """The broker's words are in what it prints, and nothing changes."""
    interop_row("mqadmin", version_of("java", "rocketmq-tools"), "mqadmin -> Lockstep", "ACL: a wrong key")
    admin = await signing_admin(drivers, broker, Credentials(ADMIN.access_key, "secret-0000"))
    told = str(await admin.ask(f"updateTopic -b {broker.broker} -t made -r 1 -w 1"))
    assert "Check signature failed for accessKey=adminadmin" in told, told
    assert "success" not in told
