"""build/fidelity.md and build/fidelity.json from the outcomes. The same outcomes give the same bytes."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from lockstep.protocol.codes import RequestCode
from tests.differential.comparing import Outcome
from tests.differential.connection_cases import CONNECTION_REASONS, ConnectionOutcome
from tests.differential.deliberate import DELIBERATE
from tests.differential.explanations import explain
from tests.differential.masks import MASKS
from tests.differential.served import served_codes, unserved_codes

__all__ = ["Fidelity", "measure"]

_SHOWN_MAX: Final = 12

_HEAD: Final = """# Fidelity

The same request goes to Lockstep and to a real Apache RocketMQ {version}, each with a name server of its own, and the
two answers are compared field by field: answered, silent or closed; the encoding, the code, the flag bits, whether
there is a remark (for pulls its text too), every extField, and the body member by member, stored messages down to
their properties. So are the requests that a broker then sends to its clients.

`make fidelity` and `make interop` write this page. The cases are in tests/differential/cases.

{about_version}
**{agree} of {cases} cases agree: {share}. The mean over {codes} request codes is {mean}.**

A case is *valid* where a client could mean it and *invalid* where a field is missing, no number, out of range, empty,
unknown or of the wrong type, or a body cannot be read. Both are compared in the same way.
"""
_ABOUT_VERSION: Final = (
    "Lockstep follows 4.9.8, whose name server and broker are not on Maven Central. "
    "{version} is the last 4.9 whose are.\n"
)


class Share(NamedTuple):
    cases: int
    agree: int

    @property
    def text(self) -> str:
        return _percent(self.agree / self.cases)


class Fidelity:
    """Raises AssertionError for outcomes of no case at all."""

    def __init__(
        self, outcomes: Sequence[Outcome], connections: Sequence[ConnectionOutcome], apache_version: str
    ) -> None:
        assert outcomes
        self._outcomes = outcomes
        self._connections = connections
        self._version = apache_version
        self.codes: dict[int, list[Outcome]] = {}
        for outcome in sorted(outcomes, key=lambda each: each.case.code):
            self.codes.setdefault(int(outcome.case.code), []).append(outcome)

    @property
    def total(self) -> Share:
        return _share(self._outcomes)

    @property
    def mean(self) -> float:
        shares = [_share(each) for each in self.codes.values()]
        return sum(share.agree / share.cases for share in shares) / len(shares)

    def counts(self) -> Mapping[str, Any]:
        """The content of build/fidelity.json."""
        codes = {str(code): _share(each)._asdict() for code, each in self.codes.items()}
        return {**self.total._asdict(), "codes": codes}

    def as_json(self) -> str:
        return json.dumps(self.counts(), indent=2) + "\n"

    def as_markdown(self) -> str:
        parts = (self._head(), self._rows(), self._unserved(), self._deliberate(), self._frames(), self._masks())
        return "\n".join(parts)

    def _head(self) -> str:
        return _HEAD.format(
            version=self._version,
            about_version="" if self._version == "4.9.8" else _ABOUT_VERSION.format(version=self._version),
            agree=self.total.agree,
            cases=self.total.cases,
            share=self.total.text,
            codes=len(self.codes),
            mean=_percent(self.mean),
        )

    def _rows(self) -> str:
        lines = [
            "## Request codes\n",
            "| code | name | server | valid | invalid | agree | the same | differs, and why |",
            "|---|---|---|---|---|---|---|---|",
        ]
        servers = served_codes()
        for code, outcomes in self.codes.items():
            kinds = [outcome.case.kind for outcome in outcomes]
            cells = (
                str(code),
                RequestCode(code).name,
                servers[code],
                str(kinds.count("valid")),
                str(kinds.count("invalid")),
                _share(outcomes).text,
                _same(outcomes),
                _differs(outcomes),
            )
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"

    def _unserved(self) -> str:
        names = "\n".join(f"- {code} {RequestCode(code).name}" for code in unserved_codes())
        return f"## Codes that are not served\n\nThey answer REQUEST_CODE_NOT_SUPPORTED (3).\n\n{names}\n"

    def _deliberate(self) -> str:
        lines = "\n".join(f"- {each}" for each in DELIBERATE)
        return f"## Differences that are meant\n\n{lines}\n"

    def _frames(self) -> str:
        lines = ["## What is no request, or hardly one\n", "| bytes | Apache | Lockstep | why |", "|---|---|---|---|"]
        for each in self._connections:
            reason = "" if each.agrees else CONNECTION_REASONS.get(each.name, "not explained")
            lines.append(f"| {each.name} | {each.apache} | {each.lockstep} | {reason} |")
        return "\n".join(lines) + "\n"

    def _masks(self) -> str:
        lines = [
            "## What is not compared\n",
            "Values that stand here must be there and be of the same kind, a number or text. Addresses and offset",
            "message ids are compared by whose they are. A remark is compared by being there. The two topics of half",
            "messages are left out of lists and counts (RocketMQ makes them when it first looks for undecided",
            "transactions, a minute after its start). Numbers of topics are compared by being zero or not (205,",
            "327).\n",
            "| path | codes | why |",
            "|---|---|---|",
        ]
        for mask in MASKS:
            codes = ", ".join(str(int(code)) for code in mask.codes) or "all"
            lines.append(f"| `{_cell(mask.path)}` | {codes} | {mask.reason} |")
        return "\n".join(lines) + "\n"


def measure(outcomes: Sequence[Outcome], connections: Sequence[ConnectionOutcome], apache_version: str) -> Fidelity:
    return Fidelity(outcomes, connections, apache_version)


def _share(outcomes: Sequence[Outcome]) -> Share:
    return Share(len(outcomes), sum(outcome.agrees for outcome in outcomes))


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _same(outcomes: Sequence[Outcome]) -> str:
    """Reply codes, extFields and top members of bodies of which some case agreed."""
    codes: set[int] = set()
    fields: set[str] = set()
    members: set[str] = set()
    for outcome in outcomes:
        if not outcome.agrees:
            continue
        codes.add(outcome.apache.get("code", -1))
        for path in outcome.paths:
            place, _, rest = path.partition(".")
            if place == "ext" and rest:
                fields.add(rest)
            elif place.startswith("body"):
                members.add(_member(place, rest))
    pieces = [f"codes {', '.join(map(str, sorted(codes - {-1})))}"] if codes - {-1} else []
    pieces += [f"ext {', '.join(sorted(fields))}"] if fields else []
    pieces += [f"body {_some(sorted(members))}"] if members else []
    return _cell("; ".join(pieces))


def _member(place: str, rest: str) -> str:
    if place.startswith("body["):
        return "messages"
    return re.split(r"[.\[{]", rest, maxsplit=1)[0] or "text"


def _differs(outcomes: Sequence[Outcome]) -> str:
    reasons: dict[str, list[str]] = {}
    for outcome in outcomes:
        for difference, explanation in explain(outcome):
            reason = explanation.reason if explanation else f"not explained: {difference}"
            names = reasons.setdefault(reason, [])
            if outcome.case.name not in names:
                names.append(outcome.case.name)
    return _cell("; ".join(f"{reason} ({_named(names)})" for reason, names in reasons.items()))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _SHOWN_MAX else f"{len(names)} members that both have"


def _named(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"
