"""One request as data: what is sent to both brokers, and where. No case says what the answer must be.

A value of a header field is sent as it is; `None` leaves the field out; a function gets the `Side` that is asked, for
what only that broker knows (the commit log offset of a message, its store time).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

__all__ = [
    "AFTER_READS",
    "BROKER",
    "LAST",
    "NAME_SERVER",
    "Ask",
    "Case",
    "Fields",
    "Table",
    "ask",
    "not_numbers",
    "plain",
    "step",
    "without",
]

BROKER: Final = "broker"
NAME_SERVER: Final = "name-server"
AFTER_READS: Final = 1
LAST: Final = 2

Fields = Mapping[str, Any]


class Ask(NamedTuple):
    """A row of a table: how one request differs from the table's usual one."""

    fields: Fields | None
    changes: dict[str, Any]


@dataclass(frozen=True)
class Case:
    code: int
    name: str
    kind: str  # "valid" and "invalid" are counted, "step" only prepares what comes after it
    fields: Fields | None = None
    body: Any = b""
    server: str = BROKER
    connection: str = "plain"  # its name; opened at the first use and kept
    encoding: int = 0
    flag: int = 0
    language: Any = "JAVA"
    version: Any = 409
    header: Mapping[str, Any] = field(default_factory=dict)  # members of the JSON header itself, replaced
    watch: tuple[str, ...] = ()  # connections whose pushes belong to the answer
    pushes: int = 1  # how many to wait for on them, all together; fewer cost time, none is waited for shortly
    meanwhile: tuple["Case", ...] = ()  # asked elsewhere while this one waits
    message: str = ""  # label under which the message of a send is known to later cases
    late: int = 0  # AFTER_READS or LAST: where the brokers disagree, it would change what later cases read
    silent: bool = False  # one of the two may never answer: wait LATE_SILENCE_S
    wait_ms: int = 0  # before it is asked

    @property
    def id(self) -> str:
        return f"code-{self.code}/{self.kind}/{self.name}"


def ask(fields: Fields | None = None, /, **changes: Any) -> Ask:
    """`fields` over the table's usual ones; the rest are members of Case."""
    return Ask(fields, changes)


def without(*names: str, **changes: Any) -> Ask:
    return Ask(dict.fromkeys(names), changes)


def not_numbers(name: str, *, bits: int = 32) -> dict[str, Ask]:
    """What a field that must be a number may hold instead."""
    return {
        f"{name}-text": ask({name: "many"}),
        f"{name}-empty": ask({name: ""}),
        f"{name}-fraction": ask({name: "1.5"}),
        f"{name}-too-big": ask({name: str(2 ** (bits - 1))}),
        f"{name}-missing": without(name),
    }


@dataclass(frozen=True)
class Table:
    """The cases of one request code: the usual request, and by name what differs from it."""

    code: int
    usual: Fields | None = None
    valid: Mapping[str, Ask] = field(default_factory=dict)
    invalid: Mapping[str, Ask] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def cases(self) -> list[Case]:
        rows = [("valid", *row) for row in self.valid.items()] + [("invalid", *row) for row in self.invalid.items()]
        return [self._case(kind, name, row) for kind, name, row in rows]

    def _case(self, kind: str, name: str, row: Ask) -> Case:
        case = Case(self.code, name, kind, _merge(self.usual, row.fields))
        return replace(case, **{**self.defaults, **row.changes})


def _merge(usual: Fields | None, fields: Fields | None) -> Fields | None:
    if usual is None and fields is None:
        return None
    merged = {**(usual or {}), **(fields or {})}
    return {name: value for name, value in merged.items() if value is not None}


def step(code: int, fields: Fields | None = None, name: str = "", **changes: Any) -> Case:
    """A request that only prepares."""
    return replace(Case(code, name or "prepare", "step", _merge(None, fields)), **changes)


def plain(code: int, **defaults: Any) -> list[Case]:
    """Cases of a code that takes neither fields nor a body: whatever is sent beside it changes nothing."""
    return Table(
        code,
        None,
        valid={
            "usual": ask(),
            "empty-fields": ask({}),
            "binary-header": ask(encoding=1),
            "cpp": ask(language="CPP", version=63),
            "go": ask(language="GO", version=317),
            "one-way": ask(flag=2),
        },
        invalid={
            "unknown-fields": ask({"queueId": "x", "topic": ""}),
            "body-not-json": ask(body=b"{nonsense"),
            "body-binary": ask(body=bytes(range(256))),
            "body-null": ask(body=b"null"),
            "unknown-language": ask(language="COBOL"),
            "version-negative": ask(version=-1),
        },
        defaults=defaults,
    ).cases()
