"""The options of `lockstep group watch`."""

from dataclasses import dataclass
from typing import Annotated

from typer import Argument, Option

from lockstep.cli.option_values import duration_option
from lockstep.cli.options import PrintedOptions, TopicOnly

__all__ = ["GroupWatchOptions"]


@dataclass(frozen=True, kw_only=True)
class GroupWatchOptions(PrintedOptions):
    group: Annotated[str, Argument(metavar="GROUP")]
    topic: TopicOnly = None
    interval_ms: Annotated[
        int, duration_option("--interval", "Between two looks.", bare="s", least="50ms", most="1h", shown="1s")
    ] = 1000
    count: Annotated[int | None, Option("--count", "-c", min=1, help="Stop after so many looks.")] = None
    life_ms: Annotated[int | None, duration_option("--seconds", "Stop after so long.", bare="s")] = None
