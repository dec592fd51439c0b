"""The commands of `lockstep trace` and their options."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from lockstep.cli.option_values import duration_option
from lockstep.cli.options import Output, Work
from lockstep.cli.output import OutputFormat, UsageError
from lockstep.order.traces.clocks import WALL_SKEW_MS

__all__ = ["trace"]

trace = typer.Typer(
    help="Traces of producers and consumers: was every message handled in order? What happened when?",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="The trace files of all processes.")]
Skew = Annotated[
    int,
    duration_option(
        "--clock-skew",
        "How far wall clocks of machines may be apart, where causes leave it open.",
        bare="ms",
        shown=f"{WALL_SKEW_MS}ms",
    ),
]


@trace.command(name="check")
def _check(
    files: Files,
    page: Annotated[
        Path | None,
        typer.Option("--report", metavar="PAGE.html", help="Also write the report with plots, as one HTML file."),
    ] = None,
    clock_skew: Skew = WALL_SKEW_MS,
    output: Output = OutputFormat.TABLE,
) -> Work:
    """Judge the order of all traces together. Exit status 0 in order, 3 not in order, 4 undecided."""
    from lockstep.cli.trace.trace import check

    return partial(check, files, clock_skew, output, page)


@trace.command(name="show")
def _show(
    files: Files,
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", metavar="TOPIC/BROKER/N", help="Only what concerns this queue.")
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", metavar="GROUP", help="Only this consumer group.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only messages of this sharding key.")] = None,
    around: Annotated[
        int | None,
        typer.Option(
            "--around", min=0, metavar="OFFSET", help="Only offsets near this one, and changes of owners then."
        ),
    ] = None,
    clock_skew: Skew = WALL_SKEW_MS,
    output: Output = OutputFormat.TABLE,
) -> Work:
    """Print in time what happened to a queue or a key."""
    from lockstep.cli.trace.trace import queue_of, show
    from lockstep.order.story import StoryOf

    if around is not None and queue is None:
        raise UsageError("--around needs --queue: offsets are those of one queue")
    wanted = StoryOf(None if queue is None else queue_of(queue), group, key, around)
    return partial(show, files, wanted, clock_skew, output)
