"""Bytes that are no requests, on both ports of a broker: the connection is closed and other clients are served."""

import json
import random
import struct
from functools import partial
from typing import Any

import msgpack
import pytest

from lockstep.protocol.codes import FRAME_BYTES_MAX, ResponseCode, SerializeType
from lockstep.testing.peer import frame, json_request
from tests.integration.harness.attacked import BOTH_PORTS, Attack, Attacked
from tests.integration.harness.bystander import BYSTANDER_TOPIC, bystander
from tests.integration.harness.processes import until
from tests.rows import each_row

JSON, BINARY, MSGPACK = SerializeType.JSON, SerializeType.ROCKETMQ, SerializeType.MSGPACK
NO_SUCH_CODE = 9999
GOOD = msgpack.packb([NO_SUCH_CODE, 0, 7, 409, None, None, None])
OPTIONS = ("--topic", f"{BYSTANDER_TOPIC}:1", "--log-level", "warning")


def header(**changes: object) -> bytes:
    """A JSON header with members changed, or left out where None is given."""
    parts = {"code": NO_SUCH_CODE, "flag": 0, "opaque": 7, "version": 409} | changes
    return json.dumps({name: value for name, value in parts.items() if value is not None}).encode()


# Name -> (bytes, what the log says of them).
UNREADABLE: dict[str, tuple[bytes, str]] = {
    "an HTTP request": (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", "frame length"),
    "a TLS hello": (bytes.fromhex("16030100c8010000c40303") + bytes(64), "TLS is not supported"),
    "random bytes": (b"\x5e" + random.Random(1).randbytes(4095), "frame length"),
    "other random bytes": (b"\xa1" + random.Random(2).randbytes(70_000), "frame length"),
    "random bytes as a header": (frame(JSON, random.Random(3).randbytes(200)), "not JSON"),
    "random bytes as a MSGPACK header": (frame(MSGPACK, b"\xc1" + random.Random(4).randbytes(200)), "not msgpack"),
    "zeros": (bytes(1024), "frame length of 0"),
    "a length over the limit": (struct.pack(">I", FRAME_BYTES_MAX + 1), "16777217"),
    "the largest length": (struct.pack(">I", 2**31 - 1), "2147483647"),
    "a negative length": (struct.pack(">i", -1), "frame length"),
    "a length of 3": (struct.pack(">I", 3) + b"abc", "frame length of 3"),
    "a header longer than its frame": (frame(JSON, header(), header_bytes=len(header()) + 1), "does not fit"),
    "the longest header": (frame(JSON, header(), header_bytes=2**24 - 1), "does not fit"),
    "header type 3": (frame(3, header()), "header type 3"),
    "header type 255": (frame(255, header()), "header type 255"),
    "a binary header cut short": (frame(BINARY, bytes(20)), "cut short"),
    "an empty header": (frame(JSON, b""), "not JSON"),
    "a header cut short": (frame(JSON, header()[:-1]), "not JSON"),
    "a header that is no UTF-8": (frame(JSON, header()[:-1] + b',"remark":"\xff"}'), "not JSON"),
    "half a surrogate pair": (frame(JSON, header()[:-1] + b',"remark":"\\ud800"}'), "not JSON"),
    "deep nesting": (frame(JSON, b"[" * 200_000), "not JSON"),
    "a number of 10,000 digits": (frame(JSON, b'{"code":' + b"9" * 10_000 + b"}"), "not JSON"),
    "a JSON list": (frame(JSON, b"[1,2,3]"), "not a JSON object"),
    "no code": (frame(JSON, header(code=None)), "code must be a number"),
    "a code of text": (frame(JSON, header(code="10")), "code must be a number"),
    "a code of true": (frame(JSON, header(code=True)), "code must be a number"),
    "no opaque": (frame(JSON, header(opaque=None)), "opaque"),
    "an opaque of text": (frame(JSON, header(opaque="7")), "opaque"),
    "a flag of text": (frame(JSON, header(flag="0")), "flag"),
    "a fraction as version": (frame(JSON, header(version=1.5)), "version"),
    "extFields in a list": (frame(JSON, header(extFields=["topic"])), "extFields must be an object"),
    "an empty MSGPACK header": (frame(MSGPACK, b""), "not msgpack"),
    "MSGPACK cut short": (frame(MSGPACK, GOOD[:-1]), "not msgpack"),
    "MSGPACK and more": (frame(MSGPACK, GOOD + b"\0"), "not msgpack"),
    "a MSGPACK map": (frame(MSGPACK, msgpack.packb({"code": NO_SUCH_CODE})), "the header is not"),
    "a short MSGPACK array": (frame(MSGPACK, msgpack.packb([NO_SUCH_CODE, 0, 7])), "the header is not"),
    "MSGPACK text as code": (frame(MSGPACK, msgpack.packb(["10", 0, 7, 409, None, None, None])), "the header is not"),
    "MSGPACK nil as opaque": (frame(MSGPACK, msgpack.packb([10, 0, None, 409, None, None, None])), "the header is not"),
    "MSGPACK fields in a map": (frame(MSGPACK, msgpack.packb([10, 0, 7, 409, None, {}, None])), "the header is not"),
    "an array said to be huge": (frame(MSGPACK, b"\xdd\xff\xff\xff\xff"), "not msgpack"),
}  # fmt: skip


def unreadable(target: Attacked, since: int = 0) -> list[dict[str, Any]]:
    """The log events about unreadable streams, but for the first `since`."""
    return target.events("frame_unreadable")[since:]


def test_an_unreadable_stream_ends_its_connection(attack: Attack) -> None:
    """No answer is possible without an opaque: the connection is closed, and one log event says why. One broker for
    all of them: what one row leaves behind, the next would meet."""

    async def story(target: Attacked) -> None:
        with each_row() as row:
            for name, (data, reason) in UNREADABLE.items():
                for port in BOTH_PORTS:
                    with row(f"{name} at the {port}"):
                        async with bystander(target), target.peer(port) as peer:
                            before = len(unreadable(target))
                            assert await peer.is_refused(data)
                            (noted,) = await until(partial(unreadable, target, before), "a line of log")
                        assert reason in noted["reason"]
                        assert len(noted["reason"]) < 300
                        assert len(unreadable(target)) == before + 1

    attack(story, *OPTIONS)


@pytest.mark.smoke
def test_what_came_before_is_answered(attack: Attack) -> None:
    """A good request and garbage in one write: the request is answered, then the connection is closed."""

    async def story(target: Attacked) -> None:
        for port in BOTH_PORTS:
            async with bystander(target), target.peer(port) as peer:
                reply = await peer.ask(json_request(NO_SUCH_CODE, opaque=11) + b"\xff" * 64)
                assert (reply.code, reply.opaque) == (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 11)
                assert await peer.is_closed()

    attack(story, *OPTIONS)


def test_a_frame_cut_short_costs_nobody_anything(attack: Attack) -> None:
    """A frame begins, and the peer closes: nothing is answered, logged or kept."""

    async def story(target: Attacked) -> None:
        with each_row() as row:
            for cut in (1, 3, 4, 7, 8, 9, 40, -1):
                for port in BOTH_PORTS:
                    with row(f"{cut} bytes at the {port}"):
                        async with bystander(target):
                            logged = target.log()
                            async with target.peer(port) as peer:
                                peer.write(json_request(NO_SUCH_CODE)[:cut])
                                peer.write_eof()
                                assert await peer.is_closed()
                            assert target.log() == logged

    attack(story, *OPTIONS)


def test_a_peer_that_says_goodbye_early_gets_its_answer(attack: Attack) -> None:
    """The peer sends a request and ends its stream: it still gets the answer."""

    async def story(target: Attacked) -> None:
        for port in BOTH_PORTS:
            async with bystander(target), target.peer(port) as peer:
                peer.write(json_request(NO_SUCH_CODE))
                peer.write_eof()
                assert (await peer.read()).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
                assert await peer.is_closed()

    attack(story, *OPTIONS)
