"""A timeline as text: the settings, the steps in the order of time, and the violations."""

from collections.abc import Sequence

from lockstep.simulation.timeline.model import Timeline, seconds

__all__ = ["timeline_text"]


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
