"""What `lockstep-sim timeline -o json` prints of each run: the steps and the violations of its text."""

from typing import Any

from lockstep.simulation.timeline.build import timeline_of
from lockstep.simulation.timeline.evidence import Evidence
from lockstep.simulation.timeline.model import LaneKind, Moment

__all__ = ["timeline_row"]


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
