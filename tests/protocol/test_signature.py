"""The signature of requests, against those of RocketMQ's own hook."""

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from lockstep.protocol.codes import RequestCode, SerializeType
from lockstep.protocol.command import RemotingCommand, decode_command, encode_command
from lockstep.protocol.frame import FrameDecoder
from lockstep.protocol.headers.messaging import PullMessageRequestHeader, SendMessageRequestHeaderV2
from lockstep.protocol.signature import SIGNATURE, Credentials, field_texts, sign, signature_of, signed_bytes
from tests.rows import by_row

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "signatures-4.9.8.json").read_text("utf-8"))
ACCOUNT = Credentials("account1", "secret-1234")
PULL = PullMessageRequestHeader("G", "orders", 3, 17, 32, 2, 0, 15_000, 1, "*")
SEND = SendMessageRequestHeaderV2("P", "orders", "TBW102", 4, 0, 0, 1_700_000_000_000, 0, unit_mode=False, batch=True)


@by_row("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_signs_as_java(vector: dict[str, Any]) -> None:
    """A request has the signature that RocketMQ's Java client gives it."""
    account = Credentials(vector["accessKey"], vector["secretKey"], vector["token"])
    command = RemotingCommand(vector["code"], body=b64decode(vector["body"]), ext_fields=vector["fields"])
    sign(command, account)
    assert command.ext_fields is not None
    assert command.ext_fields[SIGNATURE] == vector["signature"]


def received(command: RemotingCommand) -> RemotingCommand:
    decoder = FrameDecoder()
    decoder.feed(encode_command(command) + command.body)
    (frame,) = decoder.frames()
    return decode_command(frame)


@pytest.mark.parametrize(("code", "header"), [(RequestCode.PULL_MESSAGE, PULL), (RequestCode.SEND_MESSAGE_V2, SEND)])
def test_encodings_share_a_signature(code: int, header: tuple[Any, ...]) -> None:
    """A request is signed alike under each header encoding, and its receiver finds the bytes that were signed."""
    signatures = set()
    for serialize_type in SerializeType:
        command = RemotingCommand(code, header, b"body", serialize_type=serialize_type)
        sign(command, ACCOUNT)
        arrived = received(command)
        texts = field_texts(arrived)
        signatures.add(texts[SIGNATURE])
        assert signature_of(signed_bytes(texts, arrived.body), ACCOUNT.secret_key) == texts[SIGNATURE]
    assert len(signatures) == 1


def test_fewer_positions() -> None:
    """A MSGPACK header of an older peer, which lacks the last fields, is read with what was signed."""
    command = RemotingCommand(RequestCode.PULL_MESSAGE, tuple(PULL[:10]), serialize_type=SerializeType.MSGPACK)
    arrived = received(command)
    assert field_texts(arrived) == field_texts(RemotingCommand(RequestCode.PULL_MESSAGE, PULL))


def test_signing_again() -> None:
    """A request that is sent again is signed as if for the first time."""
    command = RemotingCommand(RequestCode.PULL_MESSAGE, PULL)
    sign(command, ACCOUNT)
    first = dict(command.ext_fields or {})
    sign(command, ACCOUNT)
    assert command.ext_fields == first


def test_left_out() -> None:
    """The signature itself is not signed, nor is a field that the caller leaves out."""
    texts = {"b": "2", "a": "1", SIGNATURE: "x", "c": "3"}
    assert signed_bytes(texts, b"|body", without=["c"]) == b"12|body"


def test_keys_are_hidden() -> None:
    """The text of credentials has no secret, and empty keys are refused."""
    shown = repr(Credentials("account1", "secret-1234", "token-5678"))
    assert "account1" in shown
    assert "secret-1234" not in shown
    assert "token-5678" not in shown
    with pytest.raises(ValueError, match="neither may be empty"):
        Credentials("account1", "")
