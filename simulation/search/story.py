"""The story of one seed, for people: its settings, then faults, log events and violations in the order of time."""

from collections import Counter

from lockstep.simulation.lab.experiment import FaultEvent
from lockstep.simulation.lab.faults.words import event_words
from lockstep.simulation.lab.runner import Run
from lockstep.simulation.search.names import Names

__all__ = ["story_of"]

_NOT_PLAYED = "not played: its hosts were not in a state for it"


def story_of(run: Run, *, everything: bool = False) -> list[str]:
    """Lines of text.

    Args:
        everything: also log events of level debug.
    """
    plan, played = run.plan, run.played
    lines = [f"seed {plan.seed} in {plan.lock_mode} mode, hash {run.trace_hash[:16]}"]
    lines += [f"  {name}: {value}" for name, value in plan.described().items()]
    if played is not None:
        played_events = Counter((band.at_ms, band.fault) for band in played.findings.bands)
        moments = [(event.at_ms, 0, _fault(event, played_events)) for event in plan.events]
        moments += [
            (line.at_ms, 1, f"    {line.host}: {line.event} {' '.join(f'{k}={v}' for k, v in line.fields.items())}")
            for line in played.cluster.log
            if everything or line.level != "debug"
        ]
        moments += [(found.at_ms, 2, f"WRONG  {found.kind}: {found.text}") for found in played.findings.wrong]
        named = Names(played.findings.world, played.cluster).in_text  # c1 says more than 10.0.0.3@1003#1000012757396
        moments.sort(key=lambda one: one[:2])
        lines += [f"{at_ms / 1000:10.3f} s  {named(text)}" for at_ms, _, text in moments]
        lines += ["happened: " + ", ".join(f"{name} {n}" for name, n in sorted(played.findings.sometimes.items()))]
    if run.error is not None:
        lines.append(f"ERROR  {type(run.error).__name__}: {run.error}")
    return lines


def _fault(event: FaultEvent, played: Counter[tuple[int, str]]) -> str:
    """A planned fault, and whether it is one of those that were played."""
    moment = (event.at_ms, event.fault)
    played[moment] -= 1
    return f"FAULT  {event_words(event)}" + ("" if played[moment] >= 0 else f"  ({_NOT_PLAYED})")
