"""`lockstep-sim run`, `list`, and what the command does without arguments."""

import json
import time
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from lockstep.simulation.commands.choose import Output, OutputFormat, check_writable, tell
from lockstep.simulation.commands.story_options import (
    BrokerSettings,
    ConsumerSettings,
    changes_of,
    with_setup_and_faults,
)
from lockstep.simulation.lab.chosen import chosen_run
from lockstep.simulation.lab.costs import cost_lines, costs_of
from lockstep.simulation.lab.durations import duration_text
from lockstep.simulation.lab.experiment import LockMode, PlayedWorld, why_no_mode
from lockstep.simulation.lab.faults.table import FAULTS
from lockstep.simulation.lab.faults.text import read_fault
from lockstep.simulation.lab.registry import UnknownExperimentError, experiment_names, find_experiment
from lockstep.simulation.lab.report import result_lines, run_lines
from lockstep.simulation.lab.runner import Run, run_plan
from lockstep.simulation.lab.user.story import Story, setup_of
from lockstep.simulation.search.rows import run_row

__all__ = ["app", "first_run"]

_FAILED: Final = 1
_WRONG_CALL: Final = 2
app = typer.Typer()


@app.command("run")
@with_setup_and_faults
def _run(
    name: Annotated[str, typer.Argument(metavar="STORY", help="a story of `list`, or FILE.py:NAME with your listener")],
    *,
    seed: Annotated[int, typer.Option(help="of faults, latencies and schedule")] = 1,
    lock_mode: Annotated[str | None, typer.Option(help="faithful, as RocketMQ; fenced; or fifo: members pop")] = None,
    consumer: ConsumerSettings = None,
    broker: BrokerSettings = None,
    trace: Annotated[Path | None, typer.Option(help="a file for all records of order")] = None,
    output: Output = OutputFormat.TEXT,
    **more: Any,
) -> None:
    """Run a story once on virtual time, and print what happened.

    Faults of the options replace those that the seed draws: --kill c1@30s kills c1 after 30 seconds, --stall c1@30s+70s
    stops it for 70 seconds. Each may be given several times.
    """
    setup, faults = changes_of(more)
    try:
        experiment = chosen_run(name, setup=setup, faults=faults, consumer=consumer or (), broker=broker or ())
        mode = _mode(lock_mode, experiment)
    except (UnknownExperimentError, ValueError) as error:
        typer.echo(f"lockstep-sim: {error}", err=True)
        raise typer.Exit(_WRONG_CALL) from None
    check_writable("--trace", trace)
    run = run_plan(experiment, experiment.draw(seed, mode))
    again = "" if setup or faults or consumer or broker else f"{name} --seed {seed} --lock-mode {mode}"
    tell(output, lambda: _told(name, run, again), lambda: run_row(name, run))
    if trace is not None and run.played is not None:
        _write_trace(trace, run.played, output)
    if run.error is not None or run.played is None or run.played.findings.wrong:
        raise typer.Exit(_FAILED)


def _told(name: str, run: Run, again: str) -> list[str]:
    """`again`: what chooses the run in other commands; empty: nothing does."""
    lines = [name, *run_lines(run), "", *result_lines(run)]
    if run.played is not None and getattr(run.plan, "parameters", None):
        lines += ["", *cost_lines(costs_of(run.played.cluster))]
    lines += ["", f"Hash of the run: {run.trace_hash}"]
    if run.played is not None and run.played.findings.wrong and again:
        lines += ["", f"Why:    lockstep-sim explain {again}", f"See it: lockstep-sim timeline {again} -o run.html"]
    return lines


def _mode(text: str | None, experiment: Any) -> LockMode:
    if text is None:
        text = experiment.setup.lock_mode if isinstance(experiment, Story) else LockMode.FENCED
    if why := why_no_mode(experiment, text):
        raise ValueError(f"lock mode {why}")
    return LockMode(text)


def _write_trace(path: Path, played: PlayedWorld, output: OutputFormat) -> None:
    cluster = played.cluster
    records = [record for name in cluster.traced_hosts for record in cluster.records(name)]
    records += cluster.witnessed
    lines = [json.dumps(record) + "\n" for record in sorted(records, key=itemgetter("mono_ns"))]
    try:
        path.write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"cannot write {path}: {error.strerror}") from None
    typer.echo(f"{len(lines):,} records: lockstep trace check {path}", err=output is OutputFormat.JSON)


@app.command("list")
def _list(output: Output = OutputFormat.TEXT) -> None:
    """The stories and the faults that there are."""
    stories = {name: find_experiment(name).summary for name in experiment_names()}
    tell(
        output,
        lambda: [
            "Stories: lockstep-sim run STORY",
            *(f"  {name:<16} {summary}" for name, summary in stories.items()),
            "  FILE.py:NAME     Your listener, a function that makes one or a PushConsumer, or a story of yours.",
            "\nFaults: lockstep-sim run STORY --FAULT TARGET@TIME[+DURATION][=AMOUNT]",
            *(f"  --{fault.name:<15} {fault.example:<24} {fault.help}" for fault in FAULTS.values()),
            "\nHosts: broker, broker2, ...; c1, c2, ... (consumers); producer; names1, ... A link: c1-broker.",
        ],
        lambda: {
            "stories": [{"name": name, "summary": summary} for name, summary in stories.items()],
            "faults": [{"name": one.name, "example": one.example, "help": one.help} for one in FAULTS.values()],
        },
    )


def first_run() -> None:
    """A takeover for somebody who sees it for the first time."""
    story = find_experiment("takeover")
    assert isinstance(story, Story)
    setup = setup_of({"consumers": 3, "queues": 8, "rate": 10, "work": "20ms", "life": "3m"})
    story = story.with_setup(setup, (read_fault("kill c1@30s"),))
    typer.echo(_INTRODUCTION)
    began = time.perf_counter()
    run = story.run(seed=1)
    took_s = time.perf_counter() - began
    typer.echo("\n".join([*run_lines(run)[2:], "", *result_lines(run), "", _meaning(run, took_s), "", _NEXT]))


_INTRODUCTION: Final = """\
Three consumers, c1 to c3, share the eight queues of a topic. Each queue has one owner, which holds its lock, so that
messages of a key are handled in order. Ten messages a second arrive. After 30 seconds c1 is killed. The broker and the
consumers are the real ones; time, network and disks are simulated.
"""
_NEXT: Final = """\
Try next:
  lockstep-sim run takeover --kill c1@30s --lock-mode fenced         fenced locks: free after 3 seconds
  lockstep-sim run takeover --stall c1@20s+150s --rate 3 --work 1s   c1 is not dead, it only stops: two owners
  lockstep-sim run takeover --seed 7                                 faults drawn from a seed
  lockstep-sim timeline zombie --seed 1 --lock-mode both -o t.html   both kinds of locks side by side, as a picture
  lockstep-sim run shop.py:consumer                                  your own listener
  lockstep-sim list                                                  all stories and faults
The guide is docs/simulator.md."""


def _meaning(run: Run, took_s: float) -> str:
    """What the first run shows."""
    assert run.played is not None
    longest = run.played.cluster.judge().longest_handover
    handover_s = longest.duration_ms / 1000 if longest is not None else 0
    return f"""\
What this shows: a dead owner cannot give its locks back. RocketMQ's broker keeps a lock for 60 s after its last
renewal, and consumers ask again every 20 s. So their handover took up to {handover_s:.0f} s, while the others went on.
Their new owner began at the offset that c1 had committed: a few messages came twice, none was lost, each key stayed in
order. {duration_text(run.elapsed_ms // 1000 * 1000)} of virtual time took {took_s:.1f} s of yours."""
