"""The commands of `lockstep store` and their options."""

from functools import partial
from typing import Annotated

import typer

from lockstep.cli.options import Output, Work
from lockstep.cli.output import OutputFormat

__all__ = ["store"]

store = typer.Typer(
    help="The folder of a broker's store, RocketMQ's or ours, that no broker has open: inspect, verify, dump.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Folder = Annotated[str, typer.Argument(metavar="DIR", help="What the broker was given as --data-dir.")]


@store.command(name="inspect")
def _inspect(folder: Folder, output: Output = OutputFormat.TABLE) -> Work:
    """What is in it: the log, queues, groups. Quick, as messages are not read."""
    from lockstep.cli.store.inspect import inspect_store

    return partial(inspect_store, folder, output)


@store.command(name="verify")
def _verify(folder: Folder, output: Output = OutputFormat.TABLE) -> Work:
    """Read everything, and list what is damaged by file and position. Exit status 1 when something is.

    What a crash leaves unfinished, and a broker puts in order when it starts, is listed too but is no damage.
    """
    from lockstep.cli.store.inspect import verify_store

    return partial(verify_store, folder, output)


@store.command(name="dump")
def _dump(
    folder: Folder,
    topic: Annotated[str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Only this topic.")] = None,
    queue: Annotated[int | None, typer.Option(min=0, help="Only the queue of this number.")] = None,
    offset: Annotated[int, typer.Option(min=0, help="Begin at this queue offset.")] = 0,
    count: Annotated[int | None, typer.Option("--count", "-c", min=1, help="Stop after so many messages.")] = None,
    line_format: Annotated[
        str | None,
        typer.Option("--format", "-f", metavar="FORMAT", help="Print each as this, as `lockstep consume` does."),
    ] = None,
) -> Work:
    """Print messages in the order of the log, one JSON object a line as `lockstep consume` prints them."""
    from lockstep.cli.format import format_json, parse_format
    from lockstep.cli.store.dump import DumpOptions, dump_store

    message_format = parse_format(line_format) if line_format is not None else format_json
    return partial(dump_store, folder, DumpOptions(message_format, topic, queue, offset, count))
