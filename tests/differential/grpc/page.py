"""build/fidelity-grpc.md from what was seen, and what RocketMQ showed as rows for tests/vectors."""

import json
from collections.abc import Sequence
from typing import Final

from tests.differential.explanations import Explanation, explain
from tests.differential.grpc.differences import BETTER, DIFFERENCES, is_answered_alike, unexplained
from tests.differential.grpc.played import Played

__all__ = ["as_markdown", "as_rows"]

_HEAD: Final = """# Fidelity of gRPC

The same clients ask Lockstep and a real Apache RocketMQ {version} with its proxy in local mode, over gRPC. What they
see is compared step by step: the status of gRPC, code and text, each field of an answer, the order of a stream, receipt
handles (all but pop time and place in the log), queue, offset, attempt, and times within 0.3 s, or what RocketMQ's own
timers and scans take, and what the machine itself was late. Ids, clocks, addresses and ports are masked, and texts of
Java's exceptions.

`make fidelity` and `make interop` write this page. The cases are in tests/differential/grpc.

**{alike} of {cases} cases agree: {share:.1%}.** In {same} of them all is the same, in {better} what RocketMQ answers
badly is answered well, as listed.
"""


def as_markdown(found: Sequence[Played], version: str) -> str:
    """The page."""
    alike = [one for one in found if is_answered_alike(one.outcome) and not one.apart()]
    same = sum(one.outcome.agrees for one in alike)
    head = _HEAD.format(
        version=version, cases=len(found), alike=len(alike), share=len(alike) / len(found), same=same,
        better=len(alike) - same,
    )  # fmt: skip
    parts = [head, "| part | cases | all the same | answered well | differ |", "|---|---|---|---|---|"]
    for kind in sorted({one.case.kind for one in found}):
        of_kind = [one for one in found if one.case.kind == kind]
        same, well = sum(one.agrees for one in of_kind), sum(one in alike for one in of_kind)
        parts.append(f"| {kind} | {len(of_kind)} | {same} | {well - same} | {len(of_kind) - well} |")
    parts += _table("Answered well, where RocketMQ answers badly", BETTER, found)
    parts += _table("Differences", DIFFERENCES, found)
    left = [
        f"- {one.case.id}: {', '.join(unexplained(one))} {one.apart() or ''}"
        for one in found
        if unexplained(one) or one.apart()
    ]
    parts += ["\n## Not explained\n", *(left or ["Nothing."])]
    return "\n".join(parts) + "\n"


def _table(title: str, reasons: tuple[Explanation, ...], found: Sequence[Played]) -> list[str]:
    lines = [f"\n## {title}\n", "| what | cases |", "|---|---|"]
    for reason in reasons:
        names = [one.case.id for one in found if any(each is reason for _, each in explain(one.outcome, reasons))]
        lines.append(f"| {reason.reason} | {', '.join(names)} |".replace("||", "\\|\\|"))
    return lines


def as_rows(found: Sequence[Played]) -> str:
    """A line a case, by name."""
    rows = [
        {"case": one.case.id, "facts": one.apache.facts, "times_s": one.apache.times_s, "late_s": round(one.late_s, 2)}
        for one in sorted(found, key=lambda each: each.case.id)
    ]
    return "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
