"""A message is sent by hand: to the queue of its key, and what is wrong is told in a sentence."""

from collections.abc import AsyncIterator, Iterator

import pytest

from lockstep.client.errors import SendError, SendOutcome, TopicNotFoundError
from lockstep.client.producer.producer import Producer
from lockstep.client.send_result import SendResult
from lockstep.console.acts import send
from lockstep.protocol.model import MessageQueue
from tests.commands import Lockstep, running_broker
from tests.console.pages_inside import Pages, pages_of
from tests.rows import by_row

MESSAGE = {"topic": "orders", "body": "hello"}


@pytest.fixture(scope="module")
def lockstep() -> Iterator[Lockstep]:
    with running_broker("--topic", "orders:4") as command:
        yield command


@pytest.fixture
async def pages(lockstep: Lockstep) -> AsyncIterator[Pages]:
    async with pages_of(lockstep.name_server) as opened:
        yield opened


async def test_a_message_is_stored_as_it_was_written(pages: Pages, lockstep: Lockstep) -> None:
    """In the queue where `lockstep produce` sends its key; the page links it, and the log has who sent it."""
    (row,) = lockstep("produce", "orders", "-k", "kay", "--text", "-o", "json", stdin="first\n").rows
    form = MESSAGE | {"key": "kay", "keys": "one two", "tag": "red", "properties": "colour=a=b\r\n\r\nsize=1"}
    answer = await pages.post("/send", **(form | {"body": "line 1\r\nline 2 \u00e9"}))
    assert answer.status == 200
    queue = MessageQueue("orders", row["broker"], row["queue_id"])
    link = f"/message?topic=orders&amp;broker=broker-a&amp;queue={queue.queue_id}&amp;offset={row['offset'] + 1}"
    assert link in answer.text
    (message,) = (await pages.admin.read_queue(queue, row["offset"] + 1)).messages
    assert message.body == "line 1\nline 2 \u00e9".encode()
    assert (message.sharding_key, message.keys, message.tags) == ("kay", "one two", "red")
    assert (message.properties["colour"], message.properties["size"]) == ("a=b", "1")
    (line,) = pages.log.lines
    assert (line["act"], line["key"], line["msg_id"]) == ("send", "kay", message.msg_id)


async def test_the_queue_of_a_message_group(pages: Pages, lockstep: Lockstep) -> None:
    """As `lockstep produce --message-groups` has it."""
    (row,) = lockstep(
        "produce", "orders", "-k", "kay", "--message-groups", "--text", "-o", "json", stdin="first\n"
    ).rows
    answer = await pages.post("/send", **MESSAGE, key="kay", group="1")
    assert f"broker-a:{row['queue_id']} at offset {row['offset'] + 1}." in answer.text


async def test_a_delayed_message_waits(pages: Pages) -> None:
    """It has no place in the topic yet."""
    answer = await pages.post("/send", **MESSAGE, delay="3")
    assert "until its time" in answer.text
    assert 'id="stored"' not in answer.text


@by_row(
    "changes, says",
    [
        ({"topic": ""}, "must not be empty"),
        ({"topic": "a b"}, "may hold only"),
        ({"topic": "nowhere"}, "does not know this topic"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "is reserved by RocketMQ"),
        ({"body": ""}, "at least one byte"),
        ({"delay": "19"}, "from 0 to 18"),
        ({"delay": "soon"}, "from 0 to 18"),
        ({"properties": "colour"}, "name=value, not as colour"),
        ({"properties": "TAGS=x"}, "own; choose another name"),
        ({"key": "a\x01b"}, "0x01"),
        ({"tag": "a\x02b"}, "0x01"),
    ],
)
async def test_what_cannot_be_sent(pages: Pages, changes: dict[str, str], says: str) -> None:
    """The form comes back as it was, with a sentence; nothing is sent, and no topic is made of a slip."""
    before = await pages.admin.topic_stats("orders")
    answer = await pages.post("/send", **(MESSAGE | {"tag": "kept"} | changes))
    assert answer.status == 400
    assert says in answer.text
    assert changes.get("tag", "kept") in answer.text
    assert await pages.admin.topic_stats("orders") == before
    assert not pages.log.lines
    with pytest.raises(TopicNotFoundError):
        await pages.admin.route("nowhere")


async def test_a_topic_that_takes_no_messages(pages: Pages) -> None:
    """The reason is told, and is in the log."""
    await pages.post("/topic/edit", topic="closed", read="1", write="1", perm="r")
    answer = await pages.post("/send", topic="closed", body="x")
    assert answer.status == 400
    assert "Not sent: " in answer.text
    assert "error" in pages.log.lines[-1]


async def test_an_answer_that_was_lost(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    """The producer gives up, and knows not whether the message is stored: the page does not say that it is not."""

    async def lost(*_: object, **__: object) -> SendResult:
        raise SendError("the connection broke", SendOutcome.UNKNOWN, msg_id="1F")

    monkeypatch.setattr(Producer, "send", lost)
    answer = await pages.post("/send", **MESSAGE)
    assert "may be stored: look before you send it again" in answer.text
    assert "Not sent" not in answer.text
    assert "the connection broke" in pages.log.lines[-1]["error"]


async def test_no_answer(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message may be stored."""
    monkeypatch.setattr(send, "_PATIENCE_S", 0)
    answer = await pages.post("/send", **MESSAGE)
    assert "may be stored: look before you send it again" in answer.text


async def test_a_form_without_our_token_sends_nothing(pages: Pages) -> None:
    before = await pages.admin.topic_stats("orders")
    assert (await pages.post("/send", **MESSAGE, token="guess")).status == 403
    assert await pages.admin.topic_stats("orders") == before
