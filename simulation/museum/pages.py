"""The museum in words: the table of all exhibits, one of them, and the page of all that `make docs` writes."""

from collections.abc import Iterator
from textwrap import wrap
from typing import Any, Final

from lockstep.simulation.lab.faults.text import fault_text
from lockstep.simulation.lab.runner import Run, run_plan
from lockstep.simulation.museum.exhibit import Exhibit
from lockstep.simulation.museum.registry import EXHIBITS
from lockstep.simulation.search.rows import run_row

__all__ = ["Visit", "document", "exhibit_row", "table", "told", "visit_row"]

_SENTENCES: Final = 4
_WIDTH: Final = 110
_HEAD: Final = """# The museum: real bugs of ordered consumption

Each exhibit is a bug that somebody reported of a broker or a client, here or elsewhere. A *variant* of our client or
broker has it: a few lines that replace methods of the product while the exhibit runs
([simulation/museum/](../simulation/museum)). The product itself has no such switch. Bugs of other systems are
translated, and the text says what was changed.

No script leads to the bug. A swarm draws members, messages, settings and faults from a seed: members that leave, die
and stop; connections that are cut, held, slow or partitioned. It is the same for all exhibits but for a few settings.
A sweep from seed 1 on finds the violation, and the plan is shrunk to the smallest that still shows it. The test that
an exhibit still replays also runs the mended product on the same plan, which must pass.

    lockstep-sim museum                      # the table
    lockstep-sim museum first-offset-twice   # one exhibit: told, run, and the mended run beside it
    lockstep-sim museum --all                # run all; exit status 0 if all replay
    lockstep-sim timeline museum/first-offset-twice -o t.html
    lockstep-sim sweep museum/first-offset-twice --seeds 200 --lock-mode faithful

`python -m tests.simulation.museum.find` sweeps and shrinks again, after a change that gives seeds another meaning, and
writes this page from the registry. A test holds the two equal.
"""


class Visit:
    """An exhibit and its mended twin, run with the plan that the sweep found."""

    def __init__(self, exhibit: Exhibit) -> None:
        assert exhibit.found is not None, f"{exhibit.name} was not found yet"
        self.exhibit = exhibit
        self.run = run_plan(exhibit, exhibit.found.plan)
        self.mended = run_plan(exhibit.mended(), exhibit.found.plan)

    @property
    def replays(self) -> bool:
        """Whether the variant has its violation, and the product none."""
        shown = any(text.startswith(f"{self.exhibit.kind}:") for text in _wrongs(self.run))
        return shown and self.run.error is None and self.mended.error is None and not _wrongs(self.mended)


def _wrongs(run: Run) -> list[str]:
    found = run.played.findings.wrong if run.played is not None else []
    return [f"{finding.kind}: {finding.text}" for finding in found]


def _seeds(exhibit: Exhibit) -> str:
    return "-" if exhibit.found is None else f"{exhibit.found.seed:,}"


def exhibit_row(exhibit: Exhibit) -> dict[str, Any]:
    """An exhibit as JSON fields."""
    seed = None if exhibit.found is None else exhibit.found.seed
    return {
        "exhibit": exhibit.key,
        "report": exhibit.report,
        "title": exhibit.title,
        "kind": exhibit.kind,
        "seed": seed,
        "lock_mode": exhibit.mode.value,
    }


def visit_row(visit: Visit) -> dict[str, Any]:
    """What a visit showed, with its two runs."""
    name = visit.exhibit.name
    runs = {"run": run_row(name, visit.run), "mended": run_row(name, visit.mended)}
    return exhibit_row(visit.exhibit) | {"replays": visit.replays} | runs


def table() -> list[str]:
    """One line an exhibit: its name, what goes wrong, after how many seeds it was found."""
    width = max(len(key) for key in EXHIBITS)
    reports = max(len(exhibit.report) for exhibit in EXHIBITS.values())
    lines = [f"{'exhibit':{width}}  {'seeds':>5}  {'reported as':{reports}}  what goes wrong"]
    lines += [
        f"{key:{width}}  {_seeds(exhibit):>5}  {exhibit.report:{reports}}  {exhibit.title}"
        for key, exhibit in EXHIBITS.items()
    ]
    return [*lines, "", "seeds: how many the sweep ran until it found the bug. One exhibit: lockstep-sim museum NAME"]


def told(seen: Visit) -> Iterator[str]:
    """An exhibit with what its two runs showed."""
    exhibit, found = seen.exhibit, seen.exhibit.found
    assert found is not None
    yield f"{exhibit.key}: {exhibit.title} ({exhibit.report})"
    for name, text in (("Reported", exhibit.told), ("Here", exhibit.translated), ("Prevented by", exhibit.rule)):
        yield from ("", *wrap(f"{name}: {text}", _WIDTH))
    yield from ("", f"Found by the sweep at seed {found.seed}. The smallest plan of it:")
    yield from (f"  {name}: {value}" for name, value in found.plan.described().items())
    yield from (f"  fault: {fault_text(event)}" for event in found.plan.events)
    for name, run in (("The variant", seen.run), ("The mended product, same plan", seen.mended)):
        yield from ("", f"{name}:")
        wrongs = _wrongs(run)
        yield from (f"  {text}" for text in wrongs[:_SENTENCES])
        if len(wrongs) > _SENTENCES:
            yield f"  ... and {len(wrongs) - _SENTENCES} more"
        if run.error is not None:
            yield f"  it did not reach its end: {run.error}"
        elif not wrongs:
            yield "  no violation"
    yield from ("", f"Look at both: lockstep-sim timeline {exhibit.name} -o t.html")


def document() -> str:
    """The page of all exhibits, in Markdown."""
    lines = [_HEAD, "| exhibit | reported as | what goes wrong | shown as | seeds |", "|---|---|---|---|---|"]
    for key, exhibit in EXHIBITS.items():
        link, kind = f"[{key}](#{key})", f"`{exhibit.kind}`, {exhibit.mode}"
        lines.append(f"| {link} | {exhibit.report} | {exhibit.title} | {kind} | {_seeds(exhibit)} |")
    for key, exhibit in EXHIBITS.items():
        lines += ["", f"## {key}", "", f"**{exhibit.report}.** {exhibit.told}", ""]
        lines += [f"*Here:* {exhibit.translated}", "", f"*Prevented by:* {exhibit.rule}"]
        if exhibit.found is not None:
            faults = ", ".join(f"`{fault_text(event)}`" for event in exhibit.found.plan.events) or "no fault at all"
            settings = ", ".join(f"{name} {value}" for name, value in exhibit.found.plan.described().items())
            lines += [
                "",
                f"*Found* by seed {exhibit.found.seed:,} of the sweep. The smallest plan: {settings}; {faults}.",
            ]
    return "\n".join(lines) + "\n"
