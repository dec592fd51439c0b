"""Headers with missing or wrong fields: answered with code 1 and the field's name, or served; the connection stays
open."""

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from lockstep.broker.dispatch import BROKER_HANDLERS, NAME_SERVER_HANDLERS
from lockstep.protocol.bodies.broker import DataVersion
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.codes import RemotingFlag, RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import REQUEST_HEADERS
from lockstep.protocol.headers.spec import spec_of
from tests.integration.harness.bystander import BYSTANDER_TOPIC, bystander
from tests.integration.harness.processes import Broker, Processes
from tests.integration.harness.raw import RawPeer, binary_request, json_request, msgpack_request

PORTS = {"broker": BROKER_HANDLERS, "name server": NAME_SERVER_HANDLERS}
RANGES = {32: (-(2**31), 2**31 - 1), 64: (-(2**63), 2**63 - 1)}
TOPIC = "numbers"
A_TEXT = {"topic": TOPIC, "defaultTopic": "TBW102"}
A_NUMBER = {"commitOrRollback": 8}  # an end of a transaction that decides nothing is not answered
BODY = encode_body(DataVersion(0, 0), SerializeType.JSON)  # for the one request here that needs one


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


SERVED = [(port, code) for port, handlers in PORTS.items() for code in handlers if code in REQUEST_HEADERS]
each_request = pytest.mark.parametrize(
    ("port", "code"), SERVED, ids=[f"{port}-{RequestCode(code).name}" for port, code in SERVED]
)


@pytest.fixture(scope="module")
def broker(module_processes: Processes) -> Iterator[Broker]:
    process = asyncio.run(module_processes.broker("--topic", f"{BYSTANDER_TOPIC}:1", "--topic", f"{TOPIC}:1"))
    yield process
    assert process.status is None


def peer_at(broker: Broker, port: str) -> RawPeer:
    return RawPeer({"broker": broker.port, "name server": broker.name_server_port}[port])


def refused(reply: RemotingCommand, field: Field, why: str) -> None:
    assert reply.code == ResponseCode.SYSTEM_ERROR, f"{field}: {reply}"
    assert reply.remark is not None
    assert f"the field {field.wire_name} " in reply.remark
    assert why in reply.remark
    assert len(reply.remark) < 300


def foreseen(reply: RemotingCommand) -> None:
    """Any answer that somebody thought of; the bystander sees to it that it was no accident."""
    assert reply.opaque == 7
    assert reply.code in list(ResponseCode)
    assert len(reply.remark or "") < 300


@each_request
async def test_a_missing_field_is_named(broker: Broker, port: str, code: int) -> None:
    """Each required field is left out, one after the other and all at once, in every encoding. Fields that RocketMQ
    does not require may be missing."""
    async with bystander(broker), peer_at(broker, port) as peer:
        for place, field in enumerate(fields_of(code)):
            if field.optional:
                continue
            fields = {name: value for name, value in good(code).items() if name != field.wire_name}
            for request in (json_request(code, fields), binary_request(code, fields)):
                reply = await peer.ask(request)
                refused(reply, field, "missing") if field.needed else foreseen(reply)
            values = list(good(code).values())[:place]
            refused(await peer.ask(msgpack_request(code, values)), field, "missing")
        first = next((field for field in fields_of(code) if field.needed), None)
        for request in (json_request(code, {}), json_request(code), binary_request(code, {})):
            reply = await peer.ask(request)
            refused(reply, first, "missing") if first else foreseen(reply)


@each_request
async def test_a_wrong_field_is_named(broker: Broker, port: str, code: int) -> None:
    """Text, fractions, containers and numbers beyond the field's bits where a number must stand, and the like.

    Or it counts as missing and is not missed.
    """
    async with bystander(broker), peer_at(broker, port) as peer:
        for place, field in enumerate(fields_of(code)):
            for value, why in wrong_in_json(field):
                fields = good(code) | {field.wire_name: value}
                requests = [json_request(code, fields)]
                if type(value) is str and value:
                    requests.append(binary_request(code, fields))
                for request in requests:
                    reply = await peer.ask(request)
                    refused(reply, field, why) if field.exact else foreseen(reply)
            for value, why in wrong_in_msgpack(field):
                values: list[Any] = [good_value(each) for each in fields_of(code)]
                values[place] = value
                refused(await peer.ask(msgpack_request(code, values)), field, why)


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


@each_request
async def test_no_number_is_a_surprise(broker: Broker, port: str, code: int) -> None:
    """The smallest and the largest number in each field get an expected answer, two-way and one-way."""
    async with bystander(broker), peer_at(broker, port) as peer:
        for field in fields_of(code):
            if field.kind is not int:
                continue
            for number in (*RANGES[field.bits], -1, 1):
                fields = good(code) | {field.wire_name: number}
                reply = await peer.ask(json_request(code, fields, BODY, opaque=21))
                assert reply.opaque == 21
                assert reply.code in list(ResponseCode)
                peer.write(json_request(code, fields, BODY, flag=int(RemotingFlag.ONE_WAY)))
        assert (await peer.ask(json_request(9999, opaque=22))).opaque == 22
