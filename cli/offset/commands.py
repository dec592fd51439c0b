"""The commands of `lockstep offset` and their options."""

from typing import Annotated

import typer

from lockstep.cli.options import NameServer, Output, Work
from lockstep.cli.output import OutputFormat, UsageError

__all__ = ["offset"]

offset = typer.Typer(
    help="A group's offsets: show them, reset them to a time, seek one.", no_args_is_help=True, rich_markup_mode=None
)
_LOCAL = "127.0.0.1:9876"
GroupName = Annotated[str, typer.Argument(metavar="GROUP")]
Topic = Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC", help="The topic whose offsets change.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be, and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, on a terminal.")]


@offset.command(name="show")
def _show(
    group: GroupName,
    topic: Annotated[str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Only this topic.")] = None,
    output: Output = OutputFormat.TABLE,
    name_server: NameServer = _LOCAL,
) -> Work:
    """What a group has committed of each queue, between the first and the next message, and its lag."""
    from lockstep.cli.offset.offset import show_offsets

    return show_offsets(name_server, group, topic, output)


@offset.command(name="reset")
def _reset(
    group: GroupName,
    topic: Topic,
    to_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|earliest|latest",
            help="Epoch milliseconds, a time such as 2026-01-31T12:00, or '10m ago'; or one end.",
        ),
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option(min=0, metavar="OFFSET", help="This offset in every queue, or its nearest.")
    ] = None,
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", "-q", metavar="BROKER:N", help="Only this queue; may be repeated."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also forward, over what was never consumed; also of an unknown group.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = OutputFormat.TABLE,
    name_server: NameServer = _LOCAL,
) -> Work:
    """Put a group elsewhere in a topic: members that are online are told, else the offsets are stored."""
    from lockstep.cli.offset.offset import ResetOptions, reset_offsets

    if (to_time is None) == (to_offset is None):
        raise UsageError("give either --to-time or --to-offset")
    options = ResetOptions(
        name_server=name_server,
        group=group,
        topic=topic,
        to_time=to_time,
        to_offset=to_offset,
        queues=queues or [],
        force=force,
        dry_run=dry_run,
        yes=yes,
        output=output,
    )
    return reset_offsets(options)


@offset.command(name="seek")
def _seek(
    group: GroupName,
    topic: Topic,
    queue: Annotated[str, typer.Option("--queue", "-q", metavar="BROKER:N", help="The queue.")],
    place: Annotated[str, typer.Option("--offset", metavar="OFFSET|earliest|latest", help="What is consumed next.")],
    force: Annotated[
        bool, typer.Option("--force", help="Also while the group is online, whose members may store theirs over it.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = OutputFormat.TABLE,
    name_server: NameServer = _LOCAL,
) -> Work:
    """Set the offset of one queue, while nobody of the group is online."""
    from lockstep.cli.offset.offset import SeekOptions, seek_offset

    if place not in ("earliest", "latest") and not (place.isascii() and place.isdigit() and len(place) < 20):
        raise UsageError(f"--offset {place!r}: give a number, earliest or latest")
    options = SeekOptions(
        name_server=name_server,
        group=group,
        topic=topic,
        queue=queue,
        offset=place,
        force=force,
        dry_run=dry_run,
        yes=yes,
        output=output,
    )
    return seek_offset(options)
