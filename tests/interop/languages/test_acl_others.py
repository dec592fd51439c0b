"""Unmodified Go, Node and C++ clients with accounts: what a right key does, and what a wrong one tells its user."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.harness.processes import until
from tests.interop.harness.drivers import Driver, Drivers
from tests.interop.harness.servers import Server
from tests.interop.harness.table import RowMaker
from tests.interop.languages.test_acl import ACCOUNT, MESSAGES, broker  # noqa: F401
from tests.interop.stories.java_story import again, order_of_keys
from tests.interop.stories.other_story import OtherStory, cpp_story, go_story, node_story

pytestmark = pytest.mark.timeout(300)
WRONG = {**ACCOUNT, "secret_key": "secret-0000"}
SIGNATURE = "AclException: Check signature failed for accessKey=account1"
NO_KEY = "AclException: No accessKey is configured"


@dataclass(frozen=True)
class Client:
    """A client, and what its user sees.

    Args:
        options: Of the ordered producer, beside those of all.
        instead: What the producer says of a refused send where it does not repeat the broker's words.
        no_key: The broker's words to a client without an account.
    """

    make: Callable[[Drivers, Server, RowMaker], OtherStory]
    producer: str
    consumer: str
    options: dict[str, Any]
    instead: str = ""
    no_key: str = NO_KEY


CLIENTS = {
    "Go": Client(go_story, "produce", "consume", {"log_level": "warn"}),
    "Node": Client(node_story, "produce.js", "consume.js", {"sharded": True}, "Send [4] times, still failed"),
    # It signs without an account too, with an empty key.
    "C++": Client(cpp_story, "produce.py", "consume.py", {"kind": "ordered", "log_level": "warn"},
                  "No route info of this topic", "AclException: No acl config for "),
}  # fmt: skip


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Client:
    return CLIENTS[request.param]


@pytest.fixture
def story(client: Client, drivers: Drivers, broker: Server, interop_row: RowMaker) -> OtherStory:  # noqa: F811
    """Drivers of the client on a broker with ACL, in both modes."""
    return client.make(drivers, broker, interop_row)


def consumer_options(client: Client) -> dict[str, Any]:
    return {name: value for name, value in client.options.items() if name == "log_level"}


def told(driver: Driver, folder: Path) -> str:
    """All that its user can read: events, stderr, and the log file of librocketmq."""
    logs = (folder / "logs" / "rocketmq-cpp").glob(f"{driver.pid}_*")
    return "\n".join([str(driver.look()), driver.stderr(), *(log.read_text(encoding="utf-8") for log in logs)])


async def test_with_an_account(client: Client, story: OtherStory) -> None:
    """Signed sends are stored and handled in the order of each key, under both modes."""
    row = story.row("ACL: ordered producer and consumer, signed")
    options = {"messages": MESSAGES, "keys": 4, **client.options, **ACCOUNT}
    producer = story.start(client.producer, "orders", "producers", **options)
    assert await producer.ended(60) == 0, producer.tail()
    consumer = await story.consumer(client.consumer, "orders", "workers", **consumer_options(client), **ACCOUNT)
    events = await story.handled(MESSAGES, consumer, timeout_s=60)
    row.messages, row.duplicates, row.order_kept = len(events), again(events), order_of_keys(events)
    assert {event["seq"] for event in events} == set(range(MESSAGES))
    assert row.order_kept


@pytest.mark.parametrize(
    ("topic", "account", "reason"),
    [("orders", {}, NO_KEY), ("orders", WRONG, SIGNATURE), ("other", ACCOUNT, "No default permission for topic:other")],
    ids=["no key", "wrong key", "topic of another"],
)
async def test_a_producer_is_refused(
    client: Client, story: OtherStory, tmp_path: Path, topic: str, account: dict[str, str], reason: str
) -> None:
    """Nothing is stored, and one line has RocketMQ's words: of the client, of its log, or of the broker's log."""
    reason = reason if account else client.no_key
    story.row(f"ACL: producer is told: {reason.removeprefix('AclException: ')}")
    producer = story.start(client.producer, topic, "producers", messages=2, **client.options, **account)
    assert await producer.ended(60) == 1
    assert producer.of("sent") == []
    seen = told(producer, tmp_path)
    if client.make is not node_story:  # which drops the broker's words
        assert reason in seen, producer.tail()
    assert client.instead in seen, producer.tail()
    assert "acl_refused" in story.server.log()
    assert reason.removeprefix("AclException: ") in story.server.log()


@pytest.mark.parametrize(("account", "reason"), [({}, NO_KEY), (WRONG, SIGNATURE)], ids=["no key", "wrong key"])
async def test_a_consumer_is_refused(
    client: Client, story: OtherStory, tmp_path: Path, account: dict[str, str], reason: str
) -> None:
    """It gets nothing; Node's start fails, the others go on and write RocketMQ's words to their log."""
    reason = reason if account else client.no_key
    story.row(f"ACL: consumer is told: {reason.removeprefix('AclException: ')}")
    sent = story.start(client.producer, "orders", "producers", messages=2, **client.options, **ACCOUNT)
    assert await sent.ended(60) == 0, sent.tail()
    consumer = story.start(client.consumer, "orders", "workers", **consumer_options(client), **account)

    async def refused() -> bool:
        return reason in told(consumer, tmp_path)

    if client.make is node_story:
        assert await consumer.ended(60) == 1
    elif client.make is cpp_story:  # its log has the words when it leaves, if it was refused by then
        await consumer.wait_for("ready")
        words = reason.removeprefix("AclException: ")
        await until(lambda: words in story.server.log(), "the broker refuses it")
        assert await consumer.close() == 0
    await until(refused, "a line with the reason")
    assert consumer.of("handled") == []
