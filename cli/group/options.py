"""The options of `lockstep group watch`."""

from dataclasses import dataclass
from typing import Annotated

from typer import Argument, Option

from lockstep.cli.options import PrintedOptions, TopicOnly

__all__ = ["GroupWatchOptions"]


@dataclass(frozen=True, kw_only=True)
class GroupWatchOptions(PrintedOptions):
    group: Annotated[str, Argument(metavar="GROUP")]
    topic: TopicOnly = None
    interval: Annotated[float, Option(min=0.05, max=3600, help="Seconds between two looks.")] = 1.0
    count: Annotated[int | None, Option("--count", "-c", min=1, help="Stop after so many looks.")] = None
    seconds: Annotated[float | None, Option(min=0, help="Stop after so many seconds.")] = None
