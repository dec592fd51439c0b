"""POP beside RocketMQ 5.5.0's own broker: the same requests in the same order, and what it answered."""

import json
import random
import re
from pathlib import Path
from typing import Any

from lockstep.broker.core.revive import run_pops
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import RemoteProtocolError
from lockstep.protocol.messages.message import decode_messages
from tests.broker.helpers import NOW_MS, Peer

RECORDED = Path(__file__).parents[2] / "vectors" / "pop-5.5.0.ndjson"
# The recorded receipts of deliveries that are over have NOW_MS.
BEGIN_MS = NOW_MS + 3_600_000
# With it the last pop looks at the retry topic last, as RocketMQ's did.
SEED = 7
# Stored by a send, not by a pop.
OF_SENDS = ("CLUSTER", "MSG_REGION", "TRACE_ON", "UNIQ_KEY")


class Client:
    """Sends recorded requests; knows the time and the revive queue of the newest delivery, which they name."""

    def __init__(self) -> None:
        self.peer = Peer(SerializeType.JSON, property_filter=True)
        self.peer.broker.rng = random.Random(SEED)
        self.peer.now_ms = BEGIN_MS
        self._delivery = {"$pop": "0", "$revive": "0"}

    def ask(self, row: dict[str, Any]) -> dict[str, Any]:
        self._wait(row.get("wait_ms", 0))
        fields = {name: self._named(text) for name, text in row.get("fields", {}).items()}
        body = self._named(row.get("body", "")).encode()
        try:
            reply = self.peer.call(row["code"], None, body, ext_fields=fields)
        except RemoteProtocolError as error:
            # The endpoint answers so.
            reply = RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=str(error))
        if reply is None:
            self._wait(int(fields["pollTime"]))
            (reply,) = self.peer.connection.replies
            self.peer.connection.replies.clear()
        got = {name: _text(value) for name, value in (reply.ext_fields or {}).items()}
        if row["code"] == RequestCode.POP_MESSAGE and reply.code == 0:
            self._delivery = {"$pop": got["popTime"], "$revive": got["reviveQid"]}
        return _facts(row, reply, got)

    def _wait(self, ms: int) -> None:
        self.peer.now_ms += ms
        run_pops(self.peer.broker, self.peer.now_ms)

    def _named(self, text: str) -> str:
        for name, value in ({"$now": str(self.peer.now_ms)} | self._delivery).items():
            text = text.replace(name, value)
        return text


def _facts(row: dict[str, Any], reply: RemotingCommand, fields: dict[str, str]) -> dict[str, Any]:
    if row["code"] == RequestCode.CHANGE_MESSAGE_INVISIBLETIME and fields.get("reviveQid") == "999":
        fields["invisibleTime"] = "SPAN"
    facts: dict[str, Any] = {"code": reply.code, "remark": reply.remark, "fields": fields}
    if reply.body:
        facts["messages"] = [
            (
                one.body.decode(),
                one.topic,
                one.queue_id,
                one.queue_offset,
                one.reconsume_times,
                {name: value for name, value in one.properties.items() if name not in OF_SENDS},
            )
            for one in decode_messages(reply.body)
        ]
    text = re.sub(r"\b17\d{11}\b", "TIME", json.dumps(facts))
    masked: dict[str, Any] = json.loads(re.sub(r"127\.0\.0\.1:\d+", "PEER", text))
    return masked


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_all_are_answered_alike() -> None:
    """Code, remark, fields and messages. A text of Java's exceptions need not be ours; their code must be."""
    client = Client()
    compared = 0
    for row in map(json.loads, RECORDED.read_text(encoding="utf-8").splitlines()):
        ours = client.ask(row)
        if "answer" not in row:
            assert ours["code"] == 0, row
            continue
        theirs = row["answer"]
        if theirs["remark"] == "java":
            assert ours["remark"], row["name"]
            ours["remark"] = "java"
        assert ours == theirs, row["name"]
        compared += 1
    assert compared == 92
