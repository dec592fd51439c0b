"""Topics and groups are created, changed and deleted after a page that shows it, at a real broker."""

from collections.abc import AsyncIterator, Iterator
from typing import Self
from urllib.parse import urlencode

import pytest

from lockstep.client.admin.client import AdminClient
from lockstep.console.acts.changes import DONE, REFUSED, UNKNOWN, at_each
from lockstep.console.acts.topic_changes import Wanted, planned
from lockstep.protocol.bodies.broker import BrokerData, TopicConfig
from lockstep.protocol.codes import ResponseCode
from lockstep.remoting.errors import RemotingError, RequestRefused
from tests.commands import Lockstep, running_broker
from tests.console.pages_inside import NOWHERE, Pages, ask, pages_of
from tests.rows import by_row

NEW = {"read": "4", "write": "4", "perm": "rw"}


@pytest.fixture(scope="module")
def lockstep() -> Iterator[Lockstep]:
    with running_broker() as command:
        yield command


@pytest.fixture
async def pages(lockstep: Lockstep) -> AsyncIterator[Pages]:
    async with pages_of(lockstep.name_server) as opened:
        yield opened


async def config_of(admin: AdminClient, topic: str) -> TopicConfig:
    (config,) = (await admin.topic_configs(topic)).values()
    return config


async def test_a_topic_is_made_and_changed(pages: Pages) -> None:
    """A look changes nothing; the form does, and the log has a line. A change keeps what it does not name."""
    made = NEW | {"topic": "made", "type": "FIFO", "read": "3", "write": "3"}
    look = await pages.get("/topic/edit", **made)
    assert "Nothing is changed yet" in look.text
    assert "made" not in await pages.admin.topics()
    done = await pages.post("/topic/edit", **made)
    assert "Done: broker-a." in done.text
    assert await config_of(pages.admin, "made") == TopicConfig("made", 3, 3, attributes=(("message.type", "FIFO"),))
    (line,) = pages.log.lines
    assert (line["event"], line["act"], line["topic"], line["peer"]) == (
        "console_change",
        "put topic",
        "made",
        "127.0.0.1",
    )
    assert line["outcome"] == {"broker-a": DONE}
    form = await pages.get("/topic/edit", topic="made")
    assert 'name="read" id="read" value="3"' in form.text
    look = await pages.get("/topic/edit", topic="made", read="6", write="3", perm="r")
    assert "3 → 6" in look.text
    assert "read and write → read only" in look.text
    await pages.post("/topic/edit", topic="made", read="6", write="3", perm="r")
    assert await config_of(pages.admin, "made") == TopicConfig("made", 6, 3, 4, attributes=(("message.type", "FIFO"),))
    assert "Nothing would change." in (await pages.get("/topic/edit", topic="made", read="6", write="3", perm="r")).text


async def test_keys_do_not_move_unless_it_is_said(pages: Pages) -> None:
    """As `lockstep topic create --force`: neither the page nor a form without its box does it."""
    await pages.admin.create_topic("keyed", 4)
    more = NEW | {"topic": "keyed", "read": "8", "write": "8"}
    look = await pages.get("/topic/edit", **more)
    assert "Keys would go to other queues" in look.text
    assert "danger" not in look.text
    refused = await pages.post("/topic/edit", **more)
    assert (refused.status, (await config_of(pages.admin, "keyed")).write_queue_nums) == (400, 4)
    assert "danger" in (await pages.get("/topic/edit", force="1", **more)).text
    await pages.post("/topic/edit", force="1", **more)
    assert (await config_of(pages.admin, "keyed")).write_queue_nums == 8


@by_row(
    "changes, says",
    [
        ({"topic": ""}, "must not be empty"),
        ({"topic": "a b"}, "may hold only the characters"),
        ({"topic": "x" * 128}, "at most"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "of the brokers themselves"),
        ({"read": "0"}, "whole number from 1"),
        ({"write": "many"}, "whole number from 1"),
        ({"read": "99999999999999999999999"}, "whole number from 1"),
        ({"perm": "x"}, "Choose the permissions"),
        ({"broker": "nobody"}, "No broker nobody"),
    ],
)
async def test_a_bad_topic(pages: Pages, changes: dict[str, str], says: str) -> None:
    """The form comes back with a sentence; the form of a button changes nothing either."""
    for answer in (
        await pages.get("/topic/edit", **(NEW | {"topic": "bad"} | changes)),
        await pages.post("/topic/edit", **(NEW | {"topic": "bad"} | changes)),
    ):
        assert answer.status == 400
        assert says in answer.text
        assert '<input name="topic"' in answer.text
    assert "bad" not in await pages.admin.topics()
    assert not pages.log.lines


async def test_a_form_without_a_field(pages: Pages) -> None:
    """A script may leave one out: it gets the form with a sentence, as one does with a wrong value."""
    nameless = await pages.get("/topic/edit", perm="rw")
    assert (nameless.status, "must not be empty" in nameless.text) == (400, True)
    without = await pages.post("/topic/edit", topic="bad", read="4", write="4")
    assert (without.status, "Choose the permissions" in without.text) == (400, True)


async def test_a_broker_refuses_in_words(pages: Pages) -> None:
    """What it says is on the page and in the log."""
    answer = await pages.post("/topic/edit", **NEW, topic="refused", attributes="+colour=red")
    assert "broker-a refuses: unsupported key: colour." in answer.text
    assert pages.log.lines[0]["outcome"] == {"broker-a": "refused: unsupported key: colour"}


async def test_a_topic_is_deleted_by_its_name(pages: Pages, lockstep: Lockstep) -> None:
    """The page says what goes with it; another name deletes nothing; a topic that is consumed stays."""
    lockstep("produce", "old", "--key", "k", "--text", stdin="a\nb\n")
    ask_first = await pages.get("/topic/delete", topic="old")
    assert "with 2 messages" in ask_first.text
    with lockstep.start("consume", "old", "-g", "reads", "--from", "first") as member:
        member.line()
        member.line()
        held = await pages.get("/topic/delete", topic="old")
        assert "Group reads consumes the topic with" in held.text
        assert "danger" not in held.text
        await pages.post("/topic/delete", topic="old", name="old")
        assert "old" in await pages.admin.topics()
    assert (await pages.post("/topic/delete", topic="old", name="odd")).status == 400
    assert not pages.log.lines
    done = await pages.post("/topic/delete", topic="old", name="old")
    assert "Done: old." in done.text
    assert "old" not in await pages.admin.topics()
    assert [line["act"] for line in pages.log.lines] == ["delete topic"]
    assert (await pages.get("/topic/delete", topic="old")).status == 404
    assert "of the brokers themselves" in (await pages.get("/topic/delete", topic="SCHEDULE_TOPIC_XXXX")).text


async def test_a_group_is_made_changed_and_deleted(pages: Pages, lockstep: Lockstep) -> None:
    """In order and with retries; only by its name, and not while it is online."""
    look = await pages.get("/group/edit", group="crew", order="yes", retries="3")
    assert "crew" not in await pages.admin.group_configs()
    assert "danger" in look.text
    done = await pages.post("/group/edit", group="crew", order="yes", retries="3")
    assert "Done: broker-a." in done.text
    await pages.post("/group/edit", group="crew", order="", retries="5")
    (config,) = (await pages.admin.group_configs())["crew"]
    told = await pages.admin.group_config("crew")
    assert told is not None
    assert (told.consume_message_orderly, told.retry_max_times) == (True, 5)
    assert await pages.admin.group_config("nobody-there") is None
    assert (config.consume_message_orderly, config.retry_max_times) == (True, 5)
    assert "5 → 7" in (await pages.get("/group/edit", group="crew", order="", retries="7")).text
    lockstep("produce", "work", "--key", "k", "--text", stdin="a\n")
    with lockstep.start("consume", "work", "-g", "crew", "--from", "first") as member:
        member.line()
        assert "The group is online with" in (await pages.get("/group/delete", group="crew")).text
        await pages.post("/group/delete", group="crew", name="crew")
    assert "crew" in await pages.admin.group_configs()
    assert (await pages.post("/group/delete", group="crew", name="crow")).status == 400
    answer = await pages.post("/group/delete", group="crew", name="crew", topics="1")
    assert "Done: broker-a." in answer.text
    assert "made the group again" not in answer.text
    assert "crew" not in await pages.admin.group_configs()
    assert [line["act"] for line in pages.log.lines] == ["put group", "put group", "delete group"]
    assert (await pages.get("/group/delete", group="nobody")).status == 404


@by_row(
    "changes, says",
    [
        ({"group": ""}, "must not be empty"),
        ({"group": "a b"}, "may hold only"),
        ({"order": "maybe"}, "Choose whether"),
        ({"retries": "-1"}, "whole number from 0"),
        ({"retries": "soon"}, "whole number from 0"),
    ],
)
async def test_a_bad_group(pages: Pages, changes: dict[str, str], says: str) -> None:
    for answer in (
        await pages.get("/group/edit", **({"group": "bad", "order": "yes", "retries": ""} | changes)),
        await pages.post("/group/edit", **({"group": "bad", "order": "yes", "retries": ""} | changes)),
    ):
        assert (answer.status, says in answer.text) == (400, True)
    assert "bad" not in await pages.admin.group_configs()


@by_row("path", ["/topic/edit", "/topic/delete", "/group/edit", "/group/delete"])
async def test_a_form_without_our_token_changes_nothing(path: str, pages: Pages) -> None:
    """Even with our own Origin; and none at all from another site."""
    form = NEW | {"topic": "stolen", "group": "stolen", "name": "stolen", "order": "yes", "token": "guess"}
    assert (await pages.post(path, **form)).status == 403
    body = urlencode(form | {"token": "token"}).encode()
    other = {"origin": "http://evil.example"}
    assert (await ask(pages.console, path, method="POST", headers=other, body=body)).status == 403
    assert "stolen" not in (*await pages.admin.topics(), *await pages.admin.group_configs())
    assert not pages.log.lines


# Several brokers ---------------------------------------------------------------------------------------------


async def test_one_broker_that_refuses_stops_no_other() -> None:
    """Each has its own answer; one that gives none may still make the change."""

    async def change(broker: BrokerData) -> None:
        if broker.broker_name == "b":
            raise RequestRefused("b", "UPDATE_AND_CREATE_TOPIC", ResponseCode.NO_PERMISSION, "not you")
        if broker.broker_name == "c":
            raise RemotingError("gone")

    outcomes = await at_each([BrokerData(name, "cluster", {0: name}) for name in "abc"], change)
    assert [(one.state, one.why) for one in outcomes] == [(DONE, ""), (REFUSED, "not you"), (UNKNOWN, "gone")]


class TwoBrokers(AdminClient):
    """The topic is on one of the two."""

    async def brokers(self) -> list[BrokerData]:
        return [BrokerData(name, "c", {0: name}) for name in ("broker-b", "broker-a")]

    async def topic_configs(self, topic: str) -> dict[str, TopicConfig]:
        return {"broker-a": TopicConfig(topic, 4, 4)}

    def bounded(self, bytes_max: int) -> Self:
        return self


@by_row("broker, names, moves", [("", ["broker-a", "broker-b"], True), ("broker-a", ["broker-a"], False)])
async def test_queues_at_one_more_broker_move_keys(broker: str, names: list[str], moves: bool) -> None:
    plans, moves_keys = await planned(TwoBrokers(name_server=NOWHERE), Wanted("T", 4, 4, 6, broker=broker))
    assert [plan.broker.broker_name for plan in plans] == names
    assert moves_keys is moves
