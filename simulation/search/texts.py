"""A seed and an explanation as text, for people."""

from collections import Counter
from collections.abc import Iterator

from lockstep.simulation.lab.experiment import FaultEvent
from lockstep.simulation.lab.faults.words import event_words, fault_words
from lockstep.simulation.lab.names import Names
from lockstep.simulation.lab.runner import Run
from lockstep.simulation.search.explain import Explanation
from lockstep.simulation.search.facts import Fact, at, facts_of
from lockstep.simulation.search.violation import violation_of

__all__ = ["story_of", "words_of"]

_NOT_PLAYED = "not played: its hosts were not in a state for it"


def story_of(run: Run, *, everything: bool = False) -> list[str]:
    """The story of one seed: its settings, then faults, log events and violations in the order of time.

    With a violation also what happened to its messages, as `explain` tells it.

    Args:
        everything: also log events of level debug.
    """
    plan, played = run.plan, run.played
    lines = [f"seed {plan.seed} in {plan.lock_mode} mode, hash {run.trace_hash}"]
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
        found = violation_of(run)
        if found is not None:
            lines += ["", "What happened", *map(_told, facts_of(run, found)), ""]
        lines += ["happened: " + ", ".join(f"{name} {n}" for name, n in sorted(played.findings.sometimes.items()))]
    if run.error is not None:
        lines.append(f"ERROR  {type(run.error).__name__}: {run.error}")
    return lines


def _fault(event: FaultEvent, played: Counter[tuple[int, str]]) -> str:
    """A planned fault, and whether it is one of those that were played."""
    moment = (event.at_ms, event.fault)
    played[moment] -= 1
    return f"FAULT  {event_words(event)}" + ("" if played[moment] >= 0 else f"  ({_NOT_PLAYED})")


def words_of(explanation: Explanation) -> list[str]:
    """Lines of text: why it happens, then what happened, in the order of time."""
    facts = facts_of(explanation.run, explanation.finding)
    moment_ms = explanation.inevitable_ms
    if moment_ms is not None and moment_ms < explanation.finding.at_ms:
        place = sum(fact.at_ms < moment_ms for fact in facts)
        facts.insert(place, Fact(moment_ms, "--- healed from here on, it happens all the same ---"))
    return [
        "Why",
        *(f"  {line}" for line in _why(explanation)),
        "",
        "What happened",
        *map(_told, facts),
    ]


def _told(fact: Fact) -> str:
    return f"  {at(fact.at_ms):>11}  {fact.text}"


def _why(explanation: Explanation) -> Iterator[str]:
    count, last = len(explanation.needed), explanation.last
    if last is None:
        yield "It needs no fault: it happens when all goes well, too."
        if explanation.faults:
            yield f"Without faults it happens {_where(explanation)}, as told below."
        return
    are = f"fault{'s' if explanation.faults > 1 else ''} {'is' if count == 1 else 'are'}"
    without = "it" if count == 1 else "any one of them"
    yield f"{count} of {explanation.faults} {are} enough. Without {without}, it does not happen."
    played = explanation.run.played
    bands = played.findings.bands if played is not None else []
    for number, band in enumerate(bands, 1):
        mark = "   <- the last decision" if number == len(bands) > 1 else ""
        yield f"{at(band.at_ms):>11}  {fault_words(band)}{mark}"
    if count < explanation.faults:
        yield f"With {'it' if count == 1 else 'them'} alone it happens {_where(explanation)}, as told below."
    if explanation.shortest_ms is not None:
        yield (
            f"The last one is longer than it must be: with {at(explanation.shortest_ms)} it happens too, "
            f"with {at(explanation.too_short_ms)} it does not."
        )
    if explanation.inevitable_ms is not None:
        if explanation.inevitable_ms >= explanation.finding.at_ms:
            yield "Until it happened, it was not inevitable: healing everything a millisecond before prevents it."
        else:
            healed = f"if everything is healed at {at(explanation.prevented_ms)}, it does not happen"
            yield f"It became inevitable at {at(explanation.inevitable_ms)}: {healed}; a millisecond later is too late."
    if explanation.tried_luck:
        yield (
            f"With other latencies it happens in {explanation.with_last} of {explanation.tried_luck} runs, "
            f"and without the last decision in {explanation.without_last} of {explanation.tried_luck}."
        )


def _where(explanation: Explanation) -> str:
    queue = explanation.finding.queue
    return f"at {at(explanation.finding.at_ms)}" + (f" in {queue}" if queue else "")
