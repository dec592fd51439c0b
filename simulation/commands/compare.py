"""`lockstep-sim compare`: what one story costs in several ways."""

import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from lockstep.remoting.texts import json_line
from lockstep.simulation.commands.choose import Name, check_writable
from lockstep.simulation.commands.search import Progress
from lockstep.simulation.commands.story_options import (
    BrokerSettings,
    ConsumerSettings,
    changes_of,
    with_setup_and_faults,
)
from lockstep.simulation.lab.registry import UnknownExperimentError
from lockstep.simulation.search.compare import Comparison, compare
from lockstep.simulation.search.compare_texts import (
    comparison_csv,
    comparison_lines,
    comparison_page,
    comparison_row,
)
from lockstep.simulation.search.processes import ProcessKilledError
from lockstep.simulation.search.ways import Base, read_ways, story_of

__all__ = ["app"]

_FAILED: Final = 1
_WRONG_CALL: Final = 2
app = typer.Typer()


class _Output(StrEnum):
    TEXT = "text"
    JSON = "json"
    CSV = "csv"


_TEXTS: Final[dict[_Output, Callable[[Comparison], str]]] = {
    _Output.TEXT: lambda comparison: "\n".join(comparison_lines(comparison)),
    _Output.JSON: lambda comparison: json_line(comparison_row(comparison)),
    _Output.CSV: lambda comparison: comparison_csv(comparison).rstrip("\n"),
}


@app.command("compare")
@with_setup_and_faults
def _compare(
    name: Name,
    *,
    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="NAME=VALUE,VALUE",
            help="lock_mode, an option below, as at_once, or a setting; all combinations run",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="of each way")] = 20,
    first_seed: Annotated[int, typer.Option(min=0, help="the first of them")] = 1,
    jobs: Annotated[int, typer.Option(min=1, help="processes")] = os.cpu_count() or 1,
    consumer: ConsumerSettings = None,
    broker: BrokerSettings = None,
    page: Annotated[Path | None, typer.Option(metavar="FILE", help="a page with plots")] = None,
    output: Annotated[
        _Output, typer.Option("--output", "-o", help="text for people; json; csv, a line a run")
    ] = _Output.TEXT,
    **more: Any,
) -> None:
    """Run a story in several ways, with many seeds each, and tell what each costs.

    --with lock_mode=faithful,fenced --with lock_interval_ms=20000,5000 compares four ways. Exit status 1: a run did not
    reach its end.
    """
    setup, faults = changes_of(more)
    base = Base(name, setup, tuple(faults), tuple(consumer or ()), tuple(broker or ()))
    try:
        ways = read_ways(with_ or ())
        for way in ways:
            story_of(base, way)
    except (UnknownExperimentError, ValueError) as error:
        typer.echo(f"lockstep-sim: {error}", err=True)
        raise typer.Exit(_WRONG_CALL) from None
    check_writable("--page", page)
    progress, count = Progress(), seeds * len(ways)
    try:
        comparison = compare(
            base,
            ways,
            range(first_seed, first_seed + seeds),
            jobs=jobs,
            on_progress=lambda so_far: progress.say(lambda: f"{len(so_far.trials):,} of {count:,} runs"),
        )
    except ProcessKilledError:
        raise typer.BadParameter(f"a process was killed, perhaps for memory: try fewer than --jobs {jobs}") from None
    typer.echo(_TEXTS[output](comparison))
    if page is not None:
        page.write_text(comparison_page(comparison), encoding="utf-8")
        typer.echo(f"the page: {page}", err=True)
    if comparison.errors():
        raise typer.Exit(_FAILED)
