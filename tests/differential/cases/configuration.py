"""UPDATE_BROKER_CONFIG (25). What is set here is what stood there before, so that no later case meets it."""

from typing import Final

from lockstep.protocol.codes import RequestCode as R
from tests.differential.case import Case, Table, ask

__all__ = ["CASES"]

UPDATE: Final = Table(
    R.UPDATE_BROKER_CONFIG,
    None,
    valid={
        "one": ask(body=b"brokerPermission=6"),
        "two": ask(body=b"brokerPermission=6\nautoCreateTopicEnable=true\n"),
        "unknown-name": ask(body=b"noSuchSetting=1"),
        "comment": ask(body=b"# nothing\n"),
        "blanks": ask(body=b"  brokerPermission = 6 \n"),
        "colon": ask(body=b"brokerPermission:6"),
        "binary-header": ask(body=b"brokerPermission=6", encoding=1),
        "one-way": ask(body=b"brokerPermission=6", flag=2),
    },
    invalid={
        "empty-body": ask(body=b""),
        "no-equals": ask(body=b"brokerPermission"),
        "not-a-number": ask(body=b"brokerPermission=six"),
        "empty-value": ask(body=b"brokerPermission="),
        "binary-body": ask(body=bytes(range(128, 256))),
        "json-body": ask(body=b'{"brokerPermission":6}'),
        "empty-name": ask(body=b"=5"),
        "number-too-big": ask(body=b"brokerPermission=99999999999"),
    },
)
RESTORED: Final = b"brokerPermission=6\nautoCreateTopicEnable=true\n"

CASES: Final[tuple[Case, ...]] = (
    *UPDATE.cases(),
    Case(R.UPDATE_BROKER_CONFIG, "restored", "valid", body=RESTORED),
)
