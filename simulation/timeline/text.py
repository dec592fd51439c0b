"""A timeline as lines of text, and as a row of JSON: settings, steps in the order of time, violations."""

from collections.abc import Sequence
from typing import Any

from lockstep.simulation.timeline.build import timeline_of
from lockstep.simulation.timeline.evidence import Evidence
from lockstep.simulation.timeline.model import LaneKind, Moment, Timeline, seconds

__all__ = ["timeline_row", "timeline_text"]


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
    """What `lockstep-sim timeline -o json` prints of a run: all moments."""
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
