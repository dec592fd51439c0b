"""Runs all cases, in order, on both brokers at once, and compares."""

import json
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.messages.message import decode_messages
from tests.differential.case import Case
from tests.differential.comparing import Outcome, compare
from tests.differential.explanations import EXPLANATIONS, Explanation, explain
from tests.differential.reading import Facts, facts_of
from tests.differential.side import Answer, Side

__all__ = ["PLAYS_MAX", "first_explained", "run_cases", "settle"]

PLAYS_MAX: Final = 3  # on a busy machine two of a hundred cases are late in the first play, by seconds
_APART_S: Final = 0.003  # between messages that are looked for by time: their store times are whole milliseconds
_SETTLED_S: Final = 30.0
_STORING: Final = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.END_TRANSACTION,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
)
_PLACE: Final = struct.Struct(">8xq")


def first_explained(
    plays: Iterator[list[Outcome]], explanations: tuple[Explanation, ...] = EXPLANATIONS
) -> list[Outcome]:
    """Of the first play in which each difference has its reason, else of the third.

    A pause of one process, in which a delivery or a lock ends, is no difference: it is not there in another play.
    """
    for number, outcomes in enumerate(plays, 1):
        found = (reason for outcome in outcomes for _, reason in explain(outcome, explanations))
        if number == PLAYS_MAX or None not in found:
            break
    return outcomes


def run_cases(cases: Sequence[Case], apache: Side, lockstep: Side) -> list[Outcome]:
    """One outcome a case that is counted."""
    with ThreadPoolExecutor(2) as pool:
        theirs, ours = pool.map(lambda side: _answers(cases, side), (apache, lockstep))
    return [
        compare(case, left, right) for case, left, right in zip(cases, theirs, ours, strict=True) if case.kind != "step"
    ]


def _answers(cases: Sequence[Case], side: Side) -> list[Facts]:
    facts, stores = [], False
    for case in cases:
        if stores and case.code not in _STORING:
            settle(side)
        stores = case.code in _STORING
        facts.append(_answer(case, side))
    return facts


def settle(side: Side) -> None:
    """Wait until what is stored can be read: on Apache's broker queues follow the log a little later than replies."""
    _until(side, lambda info: int(info["dispatchBehindBytes"]) == 0, "the broker's queues come up with its log")


def _until(side: Side, condition: Callable[[dict[str, str]], bool], what: str) -> dict[str, str]:
    """Wait until it is true of what the broker tells of itself, which is returned."""
    info = Case(RequestCode.GET_BROKER_RUNTIME_INFO, "settle", "step", connection="keep")
    deadline = time.monotonic() + _SETTLED_S
    while True:
        found = side.ask(info).reply
        # In its first second Apache's broker answers SYSTEM_ERROR: it has no sample of its rates yet.
        if found is not None and found.code == ResponseCode.SUCCESS:
            table: dict[str, str] = json.loads(found.body)["table"]
            if condition(table):
                return table
        assert time.monotonic() < deadline, f"not within {_SETTLED_S} s: {what}: {found}"
        side.pump(lambda: False, _APART_S)


def _answer(case: Case, side: Side) -> Facts:
    if case.flag & 2 and case.code in _STORING and case.kind == "valid":
        # Nothing tells that it is done, and RocketMQ's threads could do the next request before it.
        end = _until(side, lambda _: True, "the end of the log")["commitLogMaxOffset"]
        answer = side.ask(case)
        _until(side, lambda info: info["commitLogMaxOffset"] != end, f"{case.id} is stored")
    else:
        answer = side.ask(case)
    if case.message:
        _keep(case.message, answer, side)
    if case.code == RequestCode.POP_MESSAGE and answer.reply is not None and answer.reply.code == 0:
        side.known["delivery"] = answer.reply.fields
    return facts_of(answer, case.code, side)


def _keep(label: str, answer: Answer, side: Side) -> None:
    """Where the message of a send lies, for `physical` and `store_time` of cases/world.py."""
    fields = answer.reply.fields if answer.reply else None
    if fields and "msgId" in fields:
        first = fields["msgId"].split(",")[0]
        (offset,) = _PLACE.unpack(bytes.fromhex(first))
        view = Case(RequestCode.VIEW_MESSAGE_BY_ID, "keep", "step", {"offset": str(offset)}, connection="keep")
        found = side.ask(view).reply
        stored = decode_messages(found.body) if found is not None and found.code == 0 else []
        at_ms = stored[0].store_timestamp if stored else 0
        side.known[label] = {
            "id": first,
            "physical": offset,
            "at_ms": at_ms,
            "queue_offset": fields["queueOffset"],
            "recall_handle": fields.get("recallHandle"),
        }
        side.pump(lambda: False, _APART_S)
