"""The commands of `lockstep message` and their options."""

from typing import Annotated

import typer

from lockstep.cli.options import NameServer, Output, Work
from lockstep.cli.output import OutputFormat, UsageError

__all__ = ["message"]

message = typer.Typer(
    help="Messages: get one by its id, find those of a key or a place, tail a topic, hand one to a listener.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_LOCAL = "127.0.0.1:9876"
Topic = Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC", help="The topic to look in.")]


@message.command(name="get")
def _get(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="An offset message id, or a msg_id with --topic.")],
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Of this topic: the id is the message's own.")
    ] = None,
    output: Output = OutputFormat.TABLE,
    name_server: NameServer = _LOCAL,
) -> Work:
    """A message by its id, whole, and which groups have consumed it."""
    from lockstep.cli.message.message import get_message

    return get_message(name_server, message_id, topic, output)


@message.command(name="hand")
def _hand(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="An offset message id, or a msg_id with --topic.")],
    group: Annotated[str, typer.Option("--group", "-g", metavar="GROUP", help="The consumer group.")],
    client_id: Annotated[
        str | None, typer.Option("--client", metavar="ID", help="The member, as `group describe` names it; else any.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Of this topic: the id is the message's own.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, on a terminal.")] = False,
    output: Output = OutputFormat.TABLE,
    name_server: NameServer = _LOCAL,
) -> Work:
    """Have a member's listener called with a message once more, whatever the offsets are; status 1 when it fails."""
    from lockstep.cli.message.message import HandOptions, hand_message

    options = HandOptions(
        name_server=name_server,
        message_id=message_id,
        topic=topic,
        group=group,
        client_id=client_id,
        yes=yes,
        output=output,
    )
    return hand_message(options)


@message.command(name="find")
def _find(
    topic: Topic,
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="KEY", help="Messages whose KEYS have this word.")
    ] = None,
    begin: Annotated[
        str | None, typer.Option(metavar="TIME", help="With --key: stored at this time or later; '10m ago' will do.")
    ] = None,
    end: Annotated[str | None, typer.Option(metavar="TIME", help="With --key: stored at this time or earlier.")] = None,
    count_max: Annotated[int, typer.Option("--max", min=1, max=64, help="With --key: at most so many.")] = 64,
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", metavar="BROKER:N", help="The message of this queue at --offset.")
    ] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="The queue offset, with --queue.")] = None,
    output: Output = OutputFormat.TABLE,
    name_server: NameServer = _LOCAL,
) -> Work:
    """Messages of a key, oldest first, or the one at an offset of a queue."""
    from lockstep.cli.message.message import FindOptions, find_messages

    if (key is None) == (queue is None):
        raise UsageError("give either --key or --queue with --offset")
    if (queue is None) != (offset is None):
        raise UsageError("--queue and --offset go together")
    if key is None and (begin is not None or end is not None):
        raise UsageError("--begin and --end are for --key")
    options = FindOptions(
        name_server=name_server,
        topic=topic,
        key=key,
        begin=begin,
        end=end,
        count_max=count_max,
        queue=queue,
        offset=offset,
        output=output,
    )
    return find_messages(options)


@message.command(name="tail")
def _tail(
    topic: Topic,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="first|last|TIME",
            help="Begin here instead of a few before the end: epoch milliseconds, 2013-01-01T05:15:00Z, '10m ago'.",
        ),
    ] = None,
    tags: Annotated[
        str, typer.Option("--tag", "--tags", metavar="EXPRESSION", help="Tags to show, as in 'TagA || TagB'.")
    ] = "*",
    count: Annotated[
        int | None,
        typer.Option("--count", "-c", min=1, help="How many of the last ones (10); with --from, stop after so many."),
    ] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", metavar="BROKER:N", help="Only this queue's messages.")
    ] = None,
    line_format: Annotated[
        str | None,
        typer.Option("--format", metavar="FORMAT", help="Print each as this, as `lockstep consume` does."),
    ] = None,
    output: Output = OutputFormat.TABLE,
    name_server: NameServer = _LOCAL,
) -> Work:
    """The last messages of a topic, a line each, whoever consumes them; -o json prints JSON objects."""
    from lockstep.cli.message.tail import TailOptions, tail_messages

    options = TailOptions(
        name_server=name_server,
        topic=topic,
        tags=tags,
        queue=queue,
        begin=begin,
        count=count,
        follow=follow,
        format=line_format,
        output=output,
    )
    return tail_messages(options)
