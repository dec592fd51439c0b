"""Runs side by side, one seed in both lock modes or an exhibit with its bug and without it: a page, text, JSON."""

from collections.abc import Sequence
from typing import Any, Final

from lockstep.simulation.lab.experiment import Experiment, LockMode, Plan
from lockstep.simulation.timeline.build import timeline_of
from lockstep.simulation.timeline.evidence import Evidence
from lockstep.simulation.timeline.model import LaneKind, Moment, Timeline, seconds
from lockstep.simulation.timeline.page import BYTES_MAX, timeline_page
from lockstep.simulation.timeline.thin import MOMENTS_MAX
from lockstep.simulation.timeline.watch import watched_run

__all__ = ["page_of", "runs_of_exhibit", "runs_of_modes", "runs_of_plan", "text_of", "timeline_row", "timeline_text"]

_SMALLER: Final = 0.85


def runs_of_modes(experiment: Experiment[Any], seed: int, modes: Sequence[LockMode]) -> list[Evidence]:
    """A seed in each of some lock modes."""
    return [watched_run(experiment, experiment.draw(seed, mode), str(mode)) for mode in modes]


def runs_of_exhibit(buggy: Experiment[Any], mended: Experiment[Any], plan: Plan) -> list[Evidence]:
    """A plan with the bug of an exhibit, and without it."""
    return [watched_run(buggy, plan, "as reported"), watched_run(mended, plan, "mended")]


def runs_of_plan(experiment: Experiment[Any], plan: Plan) -> list[Evidence]:
    """A plan, such as one that was shrunk."""
    return [watched_run(experiment, plan, str(plan.lock_mode))]


def page_of(title: str, runs: Sequence[Evidence], about: str = "") -> str:
    """The page, of at most BYTES_MAX bytes: the larger the runs, the fewer of their moments are drawn one by one."""
    moments_max = MOMENTS_MAX // max(len(runs), 1)
    while True:
        page = timeline_page(title, [timeline_of(run, moments_max) for run in runs], about)
        if len(page.encode()) < BYTES_MAX or moments_max == 0:
            return page
        moments_max = int(moments_max * _SMALLER)


def text_of(title: str, runs: Sequence[Evidence]) -> list[str]:
    """Lines of text, with all moments."""
    return timeline_text(title, [timeline_of(run, 1 << 30) for run in runs])


def timeline_text(title: str, timelines: Sequence[Timeline]) -> list[str]:
    """Lines of text, one run after the other. A violation names the numbers of the steps with its records."""
    lines = [title]
    for timeline in timelines:
        lines += ["", f"== {timeline.label}" if len(timelines) > 1 else "steps", *_lines_of(timeline)]
    return lines


def _lines_of(timeline: Timeline) -> list[str]:
    settings = ", ".join(f"{name} {value}" for name, value in timeline.settings)
    lines = [f"settings: {settings}"] if settings else []
    proofs: dict[int, list[int]] = {}
    for number, wrong in enumerate(timeline.wrongs, 1):
        for step in wrong.steps:
            proofs.setdefault(step, []).append(number)
    digits = len(str(len(timeline.moments)))
    for moment in timeline.moments:
        end = f" ({moment.why})" if moment.why else ""
        marks = "".join(f" <- violation {number}" for number in proofs.get(moment.number, ()))
        lines.append(f"{moment.number:>{digits}} {seconds(moment.at_ms):>12}  {moment.text}{end}{marks}")
    lines.append(f"violations: {len(timeline.wrongs):,}" if timeline.wrongs else "no violation")
    for number, wrong in enumerate(timeline.wrongs, 1):
        steps = " and ".join(map(str, wrong.steps))
        linked = f" [{'near steps' if wrong.around else 'steps'} {steps}]" if steps else ""
        lines.append(f"{number:>{digits}} {seconds(wrong.at_ms):>12}  {wrong.kind}: {wrong.text}{linked}")
    return [*lines, *timeline.notes, *timeline.thinned]


def timeline_row(run: Evidence) -> dict[str, Any]:
    """A run with all moments."""
    timeline = timeline_of(run, 1 << 30)
    queues = {lane.key: lane.name for lane in timeline.lanes if lane.kind is LaneKind.QUEUE}
    return {
        "run": run.label,
        "settings": dict(timeline.settings),
        "elapsed_ms": run.elapsed_ms,
        "error": run.error or None,
        "trace_hash": run.trace_hash,
        "steps": [_step(moment, queues) for moment in timeline.moments],
        "violations": [
            {
                "kind": wrong.kind,
                "at_ms": wrong.at_ms,
                "text": wrong.text,
                "steps": list(wrong.steps),
                "steps_are_near": wrong.around,
            }
            for wrong in timeline.wrongs
        ],
    }


def _step(moment: Moment, queues: dict[str, str]) -> dict[str, Any]:
    return {
        "step": moment.number,
        "at_ms": moment.at_ms,
        "end_ms": moment.end_ms,
        "kind": moment.kind.value,
        "who": moment.who or None,
        "queues": [queues[lane] for lane in moment.lanes if lane in queues],
        "text": moment.text,
        "why": moment.why or None,
    }
