"""Headers with missing or wrong fields: answered with code 1 and the field's name, or served; the connection stays
open."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

import pytest

from lockstep.broker.fronts.remoting.dispatch import BROKER_HANDLERS, NAME_SERVER_HANDLERS
from lockstep.protocol.bodies.broker import DataVersion
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import REQUEST_HEADERS
from lockstep.protocol.headers.spec import spec_of
from lockstep.testing.peer import ONE_WAY, Peer, binary_request, json_request, msgpack_request
from tests.integration.harness.attacked import BOTH_PORTS, Attack, Attacked
from tests.integration.harness.bystander import BYSTANDER_TOPIC, bystander
from tests.rows import each_row

PORTS = dict(zip(BOTH_PORTS, (BROKER_HANDLERS, NAME_SERVER_HANDLERS), strict=True))
RANGES = {32: (-(2**31), 2**31 - 1), 64: (-(2**63), 2**63 - 1)}
TOPIC = "numbers"
A_TEXT = {"topic": TOPIC, "defaultTopic": "TBW102"}
A_NUMBER = {"commitOrRollback": 8}  # an end of a transaction that decides nothing is not answered
BODY = encode_body(DataVersion(0, 0), SerializeType.JSON)  # for the one request here that needs one


_BINARY_CODE_MAX = 0x7FFF

Check = Callable[[RemotingCommand], None]


class Field(NamedTuple):
    """What a test needs to know of one field of a header."""

    wire_name: str
    kind: type
    bits: int
    optional: bool
    needed: bool  # missing, it is refused in JSON too
    exact: bool  # unreadable, it is refused in JSON too


def fields_of(code: int) -> list[Field]:
    spec = spec_of(REQUEST_HEADERS[code])
    return [
        Field(field.wire_name, field.kind, field.bits, field.optional, field.needed, field.needed or spec.exact)
        for field in spec.fields
    ]


def good_value(field: Field) -> Any:
    long_name = {"b": "topic", "c": "defaultTopic"}.get(field.wire_name, field.wire_name)
    return {int: A_NUMBER.get(long_name, 0), bool: False, str: A_TEXT.get(long_name, "some")}[field.kind]


def good(code: int) -> dict[str, Any]:
    """Every required field with a value that can be read."""
    return {field.wire_name: good_value(field) for field in fields_of(code) if not field.optional}


def for_each_request(attack: Attack, check: Callable[[Peer, int], Awaitable[None]]) -> None:
    """The check for each request that a port serves, on a connection of its own; all meet one broker."""

    async def story(target: Attacked) -> None:
        with each_row() as row:
            for port, handlers in PORTS.items():
                for code in handlers:
                    if code in REQUEST_HEADERS:
                        with row(f"{RequestCode(code).name} at the {port}"):
                            async with bystander(target), target.peer(port) as peer:
                                await check(peer, code)

    attack(story, "--topic", f"{BYSTANDER_TOPIC}:1", "--topic", f"{TOPIC}:1")


def refused(reply: RemotingCommand, field: Field, why: str) -> None:
    assert reply.code == ResponseCode.SYSTEM_ERROR, f"{field}: {reply}"
    assert reply.remark is not None
    assert f"the field {field.wire_name} " in reply.remark
    assert why in reply.remark
    assert len(reply.remark) < 300


def foreseen(reply: RemotingCommand) -> None:
    """Any answer that somebody thought of; the bystander sees to it that it was no accident."""
    assert reply.code in list(ResponseCode)
    assert len(reply.remark or "") < 300


class Asked:
    """Requests that are sent in one write, and what is expected of each reply."""

    def __init__(self, code: int) -> None:
        self._code = code
        self._requests: list[bytes] = []
        self._checks: list[Check] = []

    def add(self, make: Callable[..., bytes], check: Check, *fields: Any) -> None:
        """`make`: of lockstep.testing.peer. A binary header has 16 bits for the code, and carries no larger one."""
        if make is binary_request and self._code > _BINARY_CODE_MAX:
            return
        self._requests.append(make(self._code, *fields, opaque=len(self._requests)))
        self._checks.append(check)

    async def go(self, peer: Peer) -> None:
        peer.write(b"".join(self._requests))
        replies = {reply.opaque: reply for reply in [await peer.reply() for _ in self._requests]}
        for opaque, check in enumerate(self._checks):
            check(replies[opaque])


def wrong_in_json(field: Field) -> list[tuple[Any, str]]:
    containers: list[tuple[Any, str]] = [([1], "must be"), ({"a": 1}, "must be")]
    if field.kind is not int:
        return containers
    low, high = RANGES[field.bits]
    texts = ["", "zero", "1.5", "0x10", "1e3", " 1", "1_000", "\u0661", "9" * 5000]
    beyond = [low - 1, high + 1, str(low - 1), str(high + 1)]
    return (
        containers
        + [(value, "must be a number") for value in [*texts, 1.5, True]]
        + [(value, f"must fit {field.bits} bits") for value in beyond]
    )


def wrong_in_msgpack(field: Field) -> list[tuple[Any, str]]:
    others: dict[type, list[Any]] = {int: ["0", True], bool: ["true", 1], str: [1, True, b"some"]}
    wrong: list[tuple[Any, str]] = [(value, "must be of type") for value in [*others[field.kind], 1.5, [1], {"a": 1}]]
    if not field.optional:
        wrong.append((None, "must be of type"))
    if field.kind is int:
        wrong.append((2**64 - 1, f"must fit {field.bits} bits"))
        if field.bits == 32:
            wrong += [(2**31, "must fit 32 bits"), (-(2**31) - 1, "must fit 32 bits")]
    return wrong


def test_a_missing_field_is_named(attack: Attack) -> None:
    """Each required field is left out, one after the other and all at once, in every encoding. Fields that RocketMQ
    does not require may be missing."""
    for_each_request(attack, missing_fields)


async def missing_fields(peer: Peer, code: int) -> None:
    asked = Asked(code)
    for place, field in enumerate(fields_of(code)):
        if field.optional:
            continue
        is_missed = partial(refused, field=field, why="missing")
        fields = {name: value for name, value in good(code).items() if name != field.wire_name}
        for make in (json_request, binary_request):
            asked.add(make, is_missed if field.needed else foreseen, fields)
        asked.add(msgpack_request, is_missed, list(good(code).values())[:place])
    first = next((field for field in fields_of(code) if field.needed), None)
    check = partial(refused, field=first, why="missing") if first else foreseen
    asked.add(json_request, check, {})
    asked.add(json_request, check)
    asked.add(binary_request, check, {})
    await asked.go(peer)


def test_a_wrong_field_is_named(attack: Attack) -> None:
    """Text, fractions, containers and numbers beyond the field's bits where a number must stand, and the like.

    Or it counts as missing and is not missed.
    """
    for_each_request(attack, wrong_in_text)


async def wrong_in_text(peer: Peer, code: int) -> None:
    asked = Asked(code)
    for field in fields_of(code):
        for value, why in wrong_in_json(field):
            fields = good(code) | {field.wire_name: value}
            check = partial(refused, field=field, why=why) if field.exact else foreseen
            asked.add(json_request, check, fields)
            if type(value) is str and value:
                asked.add(binary_request, check, fields)
    await asked.go(peer)


def test_a_wrong_msgpack_field_is_named(attack: Attack) -> None:
    """Any value of another type than the field's, and numbers beyond its bits."""
    for_each_request(attack, wrong_in_positions)


async def wrong_in_positions(peer: Peer, code: int) -> None:
    asked = Asked(code)
    for place, field in enumerate(fields_of(code)):
        for value, why in wrong_in_msgpack(field):
            values: list[Any] = [good_value(each) for each in fields_of(code)]
            values[place] = value
            asked.add(msgpack_request, partial(refused, field=field, why=why), values)
    await asked.go(peer)


@pytest.mark.smoke
def test_no_number_is_a_surprise(attack: Attack) -> None:
    """The smallest and the largest number in each field get an expected answer, two-way and one-way."""
    for_each_request(attack, extreme_numbers)


async def extreme_numbers(peer: Peer, code: int) -> None:
    for field in fields_of(code):
        if field.kind is not int:
            continue
        for number in (*RANGES[field.bits], -1, 1):
            fields = good(code) | {field.wire_name: number}
            if field.wire_name == "pollTime" and number > 1:
                continue  # it is answered when the wait is over
            reply = await peer.ask(json_request(code, fields, BODY, opaque=21))
            assert reply.opaque == 21
            assert reply.code in list(ResponseCode)
            peer.write(json_request(code, fields, BODY, flag=ONE_WAY))
    assert (await peer.ask(json_request(9999, opaque=22))).opaque == 22
