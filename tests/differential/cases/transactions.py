"""END_TRANSACTION (37) and RESUME_CHECK_HALF_MESSAGE (323), and their half messages."""

from typing import Any, Final

from lockstep.protocol.codes import RequestCode as R
from tests.differential.case import Ask, Case, Table, ask, not_numbers, step, without
from tests.differential.cases.world import message_id, physical, pull, queue_offset, send, topic_fields

__all__ = ["CASES"]

TOPIC: Final = "DiffTransactions"
PRODUCERS: Final = "DiffDeciders"
COMMIT: Final = "8"
ROLLBACK: Final = "12"


def _half(label: str, **more: str) -> Case:
    properties = {"TRAN_MSG": "true", "PGROUP": PRODUCERS, "KEYS": label, "UNIQ_KEY": f"{label:0>32}"} | more
    fields = send(TOPIC, 0, **properties) | {"sysFlag": "4", "producerGroup": PRODUCERS}
    return Case(R.SEND_MESSAGE, f"half-{label}", "valid", fields, body=label.encode(), message=label)


def _end(label: str, decision: str = COMMIT, **more: Any) -> dict[str, Any]:
    fields = {
        "producerGroup": PRODUCERS,
        "tranStateTableOffset": queue_offset(label),
        "commitLogOffset": physical(label),
        "commitOrRollback": decision,
        "fromTransactionCheck": "false",
        "msgId": f"{label:0>32}",
        "transactionId": f"{label:0>32}",
    }
    return fields | more


LABELS: Final = ("h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8")
END: Final = Table(
    R.END_TRANSACTION,
    _end("h8"),
    valid={
        "commit": ask(_end("h1")),
        "roll-back": ask(_end("h2", ROLLBACK)),
        "not-known-yet": ask(_end("h3", "0"), silent=True),
        "commit-after-a-question": ask(_end("h3", fromTransactionCheck="true")),
        "roll-back-after-a-question": ask(_end("h4", ROLLBACK, fromTransactionCheck="true")),
        "not-known-after-a-question": ask(_end("h5", "0", fromTransactionCheck="true"), silent=True),
        "only-what-is-needed": ask(_end("h5", transactionId=None, fromTransactionCheck=None)),
        "binary-header": ask(_end("h6"), encoding=1),
        "one-way": ask(_end("h7"), flag=2),
        "with-broker-name": ask(_end("h8", ROLLBACK, bname="broker-a")),
    },
    invalid={
        "missing-group": without("producerGroup"),
        "other-group": ask({"producerGroup": "DiffOthers"}),
        **not_numbers("tranStateTableOffset", bits=64),
        **not_numbers("commitLogOffset", bits=64),
        "other-queue-offset": ask({"tranStateTableOffset": "999"}),
        "no-such-message": ask({"commitLogOffset": "999999999999"}),
        "negative-place": ask({"commitLogOffset": "-1"}),
        "no-half-message": ask({"commitLogOffset": physical("m0")}),
        "decision-unknown": ask({"commitOrRollback": "5"}, silent=True),
        "decision-text": ask({"commitOrRollback": "commit"}, silent=True),
        "decision-missing": without("commitOrRollback", silent=True),
        "no-fields": Ask({}, {"fields": None, "silent": True}),
    },
)

RESUME: Final = Table(
    R.RESUME_CHECK_HALF_MESSAGE,
    {"msgId": message_id("h8")},
    valid={
        "undecided": ask(),
        "again": ask(),
        "binary-header": ask(encoding=1),
        "one-way": ask(flag=2),
        "lower-case": ask({"msgId": lambda side: message_id("h8")(side).lower()}),
        "of-another-host": ask({"msgId": lambda side: "0" * 16 + message_id("h8")(side)[16:]}),
        "with-broker-name": ask({"bname": "broker-a"}),
    },
    invalid={
        "no-half-message": ask({"msgId": message_id("m0")}),
        "missing": without("msgId"),
        "no-fields": Ask({}, {"fields": None}),
        "empty": ask({"msgId": ""}),
        "too-short": ask({"msgId": lambda side: message_id("h8")(side)[:-2]}),
        "too-long": ask({"msgId": lambda side: message_id("h8")(side) + "00"}),
        "odd": ask({"msgId": lambda side: message_id("h8")(side)[:-1]}),
        "no-hex": ask({"msgId": "z" * 32}),
        "a-unique-key": ask({"msgId": f"{'h8':0>32}"}),
        "behind-the-log": ask({"msgId": lambda side: message_id("h8")(side)[:16] + "0" * 8 + "F" * 8}),
        "negative": ask({"msgId": lambda side: message_id("h8")(side)[:16] + "F" * 16}),
        "inside-a-message": ask({"msgId": lambda side: f"{int(message_id('h8')(side), 16) + 1:032X}"}),
    },
)

CASES: Final[tuple[Case, ...]] = (
    step(R.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC, 1, 1), "transactions"),
    *(_half(label) for label in LABELS),
    Case(R.PULL_MESSAGE, "nothing-is-committed", "valid", pull(TOPIC, consumerGroup="DiffReader")),
    *RESUME.cases(),
    *END.cases(),
    Case(R.RESUME_CHECK_HALF_MESSAGE, "committed", "valid", {"msgId": message_id("h1")}),
    Case(R.PULL_MESSAGE, "what-is-committed", "valid", pull(TOPIC, consumerGroup="DiffReader")),
    Case(R.GET_MAX_OFFSET, "what-is-committed", "valid", {"topic": TOPIC, "queueId": "0"}),
)
