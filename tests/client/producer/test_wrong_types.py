"""Values of wrong types: each is refused as a ClientError that names it, and no later send waits for it."""

import re
from typing import Any

import pytest

from lockstep.client import ClientError, Message
from tests.client.producer.send_stage import producer_for, store
from tests.client.stage import TOPIC, Stage, on_stage, queue_at

_GOOD: Any = {"topic": TOPIC, "body": b"x"}
_WRONG: list[tuple[Any, dict[str, Any], str]] = [
    (None, {}, "a Message is sent, not None"),
    (b"x", {}, "a Message is sent, not bytes"),
    (Message(**_GOOD), {"sharding_key": 1001}, "a sharding key must be a str, not int 1001"),
    (Message(**_GOOD), {"sharding_key": 0}, "a sharding key must be a str, not int 0"),
    (Message(**_GOOD), {"sharding_key": b"k"}, "a sharding key must be a str, not bytes b'k'"),
    (Message(**_GOOD), {"timeout_ms": "3"}, "timeout_ms must be a number of ms, not str '3'"),
    (Message(**_GOOD, sharding_key=7), {}, "a sharding key must be a str, not int 7"),  # type: ignore[arg-type]
    *[
        (Message(**{**_GOOD, **wrong}), {}, text)
        for wrong, text in (
            ({"body": "text"}, "a body must be bytes, not str"),
            ({"topic": None}, "a topic must be a str, not None"),
            ({"topic": ["T"]}, "a topic must be a str, not list ['T']"),
            ({"tags": 5}, "tags must be a str, not int 5"),
            ({"keys": b"k1"}, "keys must be a str or several, not bytes b'k1'"),
            ({"keys": 5}, "keys must be a str or several, not int 5"),
            ({"keys": ["a", 2]}, "each of the keys must be a str, not int 2"),
            ({"properties": {"n": 5}}, "the value of property 'n' must be a str, not int 5"),
            ({"properties": {5: "n"}}, "the name of a property must be a str, not int 5"),
            ({"properties": [("n", "v")]}, "properties must be a dict of str, not list"),
            ({"delay_level": "3"}, "a delay level must be an int, not str '3'"),
            ({"flag": None}, "a flag must be an int, not None"),
            ({"flag": "1"}, "a flag must be an int, not str '1'"),
        )
    ],
]


@on_stage
async def test_wrong_types_are_refused(stage: Stage) -> None:
    """By each kind of send, and the next send goes through."""
    stored = store(await stage.broker(queues=1))
    async with producer_for(stage) as producer:
        for message, arguments, text in _WRONG:
            for send in (producer.send, producer.send_async, producer.request):
                with pytest.raises(ClientError, match=re.escape(text)) as caught:
                    await send(message, **arguments)
                assert isinstance(caught.value, ValueError)
            if "timeout_ms" not in arguments:
                for one_way in (
                    producer.send_one_way(message, **arguments),
                    producer.send_batch([message], **arguments),
                ):
                    with pytest.raises(ClientError, match=re.escape(text)):
                        await one_way
        for batch in (None, 5, b"x", Message(**_GOOD), [None]):
            with pytest.raises(ClientError, match=r"a batch is a list of messages|a Message is sent"):
                await producer.send_batch(batch)  # type: ignore[arg-type]
        await producer.send(Message(**_GOOD), queue=queue_at(0))
    assert stored == [b"x"]
