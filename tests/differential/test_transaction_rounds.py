"""When brokers ask about half messages, and which topics that makes: Apache's broker and ours, one after the other.

Both have rounds of their own clocks, so these answers are looked at one by one and not case by case.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from lockstep.protocol.codes import RequestCode as R
from lockstep.protocol.messages.message import decode_messages
from tests.differential.case import BROKER, NAME_SERVER, Case
from tests.differential.cases.world import object_body, pull, send, topic_fields
from tests.differential.conftest import side_of
from tests.differential.run import settle
from tests.differential.side import Received, Side
from tests.interop.harness.servers import apache_server, lockstep_server

INTERVALS_S: Final = (12, 40, 120)  # a busy machine may need the longer ones: what is looked at is over in between
PRODUCERS: Final = "DiffDeciders"
TOPIC: Final = "DiffRounds"
HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TIMEOUT_S: Final = 60.0


class TooLateError(Exception):
    """A round may have come before what was to come before it."""


@contextmanager
def asking(which: str, folder: Path, interval_s: int) -> Iterator[Side]:
    """A broker that asks once an interval, with a producer's connection."""
    folder.mkdir()
    settings = {"transactionCheckInterval": interval_s * 1000, "transactionTimeOut": 500}
    options = [word for name, value in settings.items() for word in ("-D", f"{name}={value}")]
    opened = apache_server(folder, settings) if which == "apache" else lockstep_server(folder, *options)
    with opened as server, side_of(server) as side:
        beat = {"clientID": "decider", "consumerDataSet": [], "producerDataSet": [{"groupName": PRODUCERS}]}
        assert ask(side, R.HEART_BEAT, body=object_body(beat)).code == 0
        assert ask(side, R.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC, 1, 1)).code == 0
        yield side


def ask(
    side: Side, code: int, fields: dict[str, Any] | None = None, *, body: bytes = b"", server: str = BROKER
) -> Received:
    reply = side.ask(Case(code, "", "step", fields, body=body, server=server)).reply
    assert reply is not None
    return reply


def send_half(side: Side, label: str) -> None:
    properties = {"TRAN_MSG": "true", "PGROUP": PRODUCERS, "UNIQ_KEY": f"{label:0>32}"}
    fields = send(TOPIC, 0, **properties) | {"sysFlag": "4", "producerGroup": PRODUCERS}
    fields["bornTimestamp"] = str(time.time_ns() // 1_000_000)
    assert ask(side, R.SEND_MESSAGE, fields, body=label.encode()).code == 0


def question(side: Side, interval_s: float) -> Received:
    """The next check of a transaction that the broker sends."""
    received = side.connection("plain").received
    side.pump(lambda: any(one.code == R.CHECK_TRANSACTION_STATE for one in received), TIMEOUT_S + interval_s)
    (found,) = [one for one in received if one.code == R.CHECK_TRANSACTION_STATE]
    received.remove(found)
    return found


def commit(side: Side, asked: Received) -> None:
    known = asked.fields or {}
    names = ("tranStateTableOffset", "commitLogOffset", "msgId", "transactionId")
    decision = {"producerGroup": PRODUCERS, "commitOrRollback": "8", "fromTransactionCheck": "true"}
    assert ask(side, R.END_TRANSACTION, decision | {name: known[name] for name in names}).code == 0


def seen(side: Side) -> dict[str, tuple[bool, int, int, str | None]]:
    """Of both topics: in the broker's table, code of the route, code of a pull, end of the queue."""
    table = json.loads(ask(side, R.GET_ALL_TOPIC_CONFIG).body)["topicConfigTable"]
    found = {}
    for topic in (HALF, OP):
        route = ask(side, R.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, server=NAME_SERVER)
        fields = pull(topic, consumerGroup="DiffReader", sysFlag="4", suspendTimeoutMillis="0")
        end = ask(side, R.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"})
        found[topic] = (
            topic in table,
            route.code,
            ask(side, R.PULL_MESSAGE, fields).code,
            (end.fields or {})["offset"],
        )
    return found


@pytest.mark.timeout(900)
@pytest.mark.parametrize("which", ["apache", "lockstep"])
def test_rounds_and_their_topics(which: str, tmp_path: Path) -> None:
    """A lone half message is asked about in the broker's next round, half an interval after it was sent; the first
    round makes the half topic, and nothing makes that of the marks."""
    for interval_s in INTERVALS_S:
        try:
            two_rounds(which, tmp_path / f"{interval_s}", interval_s)
        except TooLateError:
            continue
        return
    pytest.fail(f"too slow for rounds {INTERVALS_S[-1]} s apart")


def two_rounds(which: str, folder: Path, interval_s: int) -> None:
    started_s = time.monotonic()  # the first round is an interval after this or later
    with asking(which, folder, interval_s) as side:
        send_half(side, "first")
        settle(side)
        before = seen(side)
        in_time(started_s + interval_s)
        assert before == {HALF: (False, 17, 17, "1"), OP: (False, 17, 17, "0")}
        asked = question(side, interval_s)
        asked_s = time.monotonic()
        commit(side, asked)
        settle(side)
        assert seen(side) == {HALF: (True, 0, 0, "2"), OP: (False, 17, 17, "1")}
        side.pump(lambda: False, asked_s + interval_s / 2 - time.monotonic())
        send_half(side, "second")
        in_time(asked_s + interval_s * 3 / 4)  # else it might be sent after the next round, or hardly before
        asked = question(side, interval_s)
        assert time.monotonic() - asked_s < interval_s * 3 / 2, "not in the next round"
        (message,) = decode_messages(asked.body)
        assert (message.topic, message.queue_id, message.body) == (TOPIC, 0, b"second")
        assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
        assert set(asked.fields or ()) == {
            "commitLogOffset", "msgId", "offsetMsgId", "tranStateTableOffset", "transactionId",
        }  # fmt: skip


def in_time(deadline_s: float) -> None:
    if time.monotonic() > deadline_s:
        raise TooLateError
