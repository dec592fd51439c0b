"""What commands print with `-o json`: the shape of an outcome is written here, once for all of them."""

from collections.abc import Sequence
from typing import Any

from lockstep.simulation.lab.costs import costs_of
from lockstep.simulation.lab.experiment import FaultEvent, LockMode, Plan, SeedResult
from lockstep.simulation.lab.findings import Finding
from lockstep.simulation.lab.report import longest_handover, owner_changes
from lockstep.simulation.lab.runner import Run, outcome_of
from lockstep.simulation.search.explain import Explanation
from lockstep.simulation.search.shrink import Shrunk
from lockstep.simulation.search.summary import Summary

__all__ = ["explanation_row", "outcome_row", "plan_row", "run_row", "shrunk_row", "sweep_row"]


def plan_row(plan: Plan) -> dict[str, Any]:
    """The settings of a plan, and its faults as fields."""
    faults = [_fault_row(event) for event in plan.events]
    settings = {name: str(value) for name, value in plan.described().items()}
    return {"settings": settings, "life_ms": plan.life_ms, "faults": faults}


def _fault_row(event: FaultEvent) -> dict[str, Any]:
    return {**event._asdict(), "fault": str(event.fault)}


def outcome_row(name: str, outcome: SeedResult) -> dict[str, Any]:
    """What is kept of a seed.

    Args:
        name: of the experiment.
    """
    return {
        "experiment": name,
        "seed": outcome.seed,
        "lock_mode": outcome.mode.value,
        "good": not outcome.wrong and not outcome.error,
        "violations": outcome.wrong,
        "happened": outcome.sometimes,
        "error": outcome.error or None,
        "trace_hash": outcome.trace_hash,
    }


def run_row(name: str, run: Run) -> dict[str, Any]:
    """A run with all that was found, and what the judge of order counted."""
    row = outcome_row(name, outcome_of(run)) | {"plan": plan_row(run.plan), "elapsed_ms": run.elapsed_ms}
    if run.played is None:
        return row | {"findings": []}
    report = run.played.cluster.judge()
    longest = longest_handover(run.played.cluster, report)
    return row | {
        "findings": [_finding_row(found) for found in run.played.findings.wrong],
        "verdict": report.verdict.value,
        "sent": report.sent,
        "sends_made_again": run.played.cluster.sends.again,
        "sends_given_up": len(run.played.cluster.sends.failed),
        "handled": report.handled,
        "attempts": report.attempts,
        "lost": report.lost,
        "duplicates": {str(cause): count for cause, count in report.duplicates.items()},
        "handovers": owner_changes(run.played.cluster, report),
        "longest_handover_ms": None if longest is None else longest.duration_ms,
        "costs": costs_of(run.played.cluster).row(),
    }


def _finding_row(found: Finding) -> dict[str, Any]:
    return {"kind": str(found.kind), "at_ms": found.at_ms, "queue": found.queue or None, "text": found.text}


def sweep_row(summary: Summary, modes: Sequence[LockMode], *, wanted: int) -> dict[str, Any]:
    """The counts of a sweep, and the outcomes of seeds that failed.

    Args:
        wanted: how many seeds were asked for, in all modes.
    """
    done = summary.seeds.total()
    rare = [{"lock_mode": mode.value, "what": what, "share": share} for mode, what, share in summary.too_rare()]
    return {
        "experiment": summary.name,
        "good": summary.good,
        "complete": done == wanted,
        "seeds": {mode.value: summary.seeds[mode] for mode in modes},
        "violations": {mode.value: dict(summary.wrong[mode]) for mode in modes},
        "happened": {mode.value: dict(summary.sometimes[mode]) for mode in modes},
        "too_rare": rare,
        "failing": [outcome_row(summary.name, outcome) for outcome in summary.failing],
    }


def _violation_row(name: str, plan: Plan, found: Finding) -> dict[str, Any]:
    return {"experiment": name, "seed": plan.seed, "lock_mode": plan.lock_mode.value, "violation": _finding_row(found)}


def shrunk_row(name: str, plan: Plan, found: Finding, shrunk: Shrunk, file: str) -> dict[str, Any]:
    """What `shrink` found.

    Args:
        plan: from which it began.
        found: its violation.
        file: the smaller plan is there.
    """
    return {
        **_violation_row(name, plan, found),
        "file": file,
        "plan": plan_row(shrunk.plan),
        "before": plan_row(plan),
        "runs": shrunk.runs,
        "complete": shrunk.complete,
    }


def explanation_row(name: str, plan: Plan, found: Finding, why: Explanation) -> dict[str, Any]:
    """Why a violation happens."""
    return {
        **_violation_row(name, plan, found),
        "needed": [_fault_row(event) for event in why.needed],
        "faults": why.faults,
        "shortest_ms": why.shortest_ms,
        "too_short_ms": why.too_short_ms if why.shortest_ms is not None else None,
        "inevitable_ms": why.inevitable_ms,
        "prevented_ms": why.prevented_ms if why.inevitable_ms is not None else None,
        "other_latencies": {"runs": why.tried_luck, "with_last": why.with_last, "without_last": why.without_last},
        "runs": why.runs,
    }
