"""The commands of `lockstep` and their options.

A command checks its options and returns the coroutine that does its work, from the module of its name, which is
imported only then: `lockstep --help` imports none of them.
"""

import sys
from importlib.metadata import version
from typing import Annotated, Any

import typer

from lockstep.cli.message.commands import message
from lockstep.cli.offset.commands import offset
from lockstep.cli.options import Group, NameServer, Output, Profile, ProfileOption, Properties, Verbose, Work
from lockstep.cli.output import OutputFormat, UsageError, unbuffered
from lockstep.cli.store.commands import store

__all__ = ["app", "root"]

_LOCAL = "127.0.0.1:9876"


def _typer(help_text: str, **settings: Any) -> typer.Typer:
    return typer.Typer(help=help_text, no_args_is_help=True, rich_markup_mode=None, **settings)


app = _typer(
    "Talk to a Lockstep broker or a RocketMQ cluster.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
topics = _typer("Topics: list, create, stats.")
groups = _typer("Consumer groups: list, describe (members, queues, statistics), delete.")
locks = _typer("Queue locks: list, watch. Of Lockstep brokers only: RocketMQ has no such call.")
app.add_typer(message, name="message")
app.add_typer(topics, name="topic")
app.add_typer(groups, name="group")
app.add_typer(offset, name="offset")
app.add_typer(locks, name="lock")
app.add_typer(store, name="store")

TopicName = Annotated[str, typer.Argument(metavar="TOPIC")]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lockstep {version('lockstep-mq')}")
        raise typer.Exit


def root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The options of `lockstep` itself."""


@app.command(name="produce")
def _produce(
    topic: TopicName,
    file: Annotated[
        typer.FileBinaryRead | None, typer.Option(metavar="PATH", help="Read this file instead of stdin.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", "-k", metavar="KEY", help="Sharding key of every message: one key, one queue, in order."),
    ] = None,
    key_field: Annotated[
        str | None, typer.Option(metavar="NAME", help="The sharding key is this field of each line.")
    ] = None,
    body_field: Annotated[
        str | None, typer.Option(metavar="NAME", help="The body is this field of each line, not the whole line.")
    ] = None,
    tags: Annotated[str | None, typer.Option(metavar="TAG", help="Tag of every message.")] = None,
    text: Annotated[bool, typer.Option("--text", help="Lines are bodies as they are, JSON or not.")] = False,
    envelope: Annotated[
        bool, typer.Option("--envelope", help="Lines are messages as `lockstep consume` prints them.")
    ] = False,
    in_flight: Annotated[int, typer.Option(min=1, max=10_000, help="Sends under way at once; order is kept.")] = 64,
    skip_bad_lines: Annotated[
        bool, typer.Option("--skip-bad-lines", help="Count lines that are no message instead of stopping.")
    ] = False,
    output: Output = OutputFormat.TABLE,
    properties: Properties = None,
    name_server: NameServer = _LOCAL,
) -> Work:
    """Send a message for each line of stdin; a line is a JSON object.

    With -o json the result of each is a line on stdout.
    """
    from lockstep.cli.produce.command import ProduceOptions, produce
    from lockstep.cli.produce.lines import LineFormat, check_word

    _only_one(("--key", key is not None), ("--key-field", key_field is not None))
    _only_one(("--text", text), ("--envelope", envelope), ("--body-field", body_field is not None))
    _only_one(("--text", text), ("--envelope", envelope), ("--key-field", key_field is not None))
    for option, word in (("--key", key), ("--tags", tags)):
        if word is not None:
            try:
                check_word(word, option)
            except ValueError as error:
                raise UsageError(str(error)) from None
    lines = LineFormat(
        topic=topic, text=text, envelope=envelope, key=key, key_field=key_field, body_field=body_field, tags=tags
    )
    options = ProduceOptions(
        name_server=name_server,
        source=unbuffered(file or sys.stdin.buffer),
        format=lines,
        in_flight=in_flight,
        skip_bad_lines=skip_bad_lines,
        output=output,
        properties=properties,
    )
    return produce(options)


@app.command(name="consume")
def _consume(
    topic: TopicName,
    group: Annotated[str, typer.Option("--group", "-g", metavar="GROUP", help="The consumer group to join.")],
    tags: Annotated[str, typer.Option(metavar="EXPRESSION", help="Tags to take, as in 'TagA || TagB'.")] = "*",
    count: Annotated[int | None, typer.Option("--count", "-c", min=1, help="Stop after so many messages.")] = None,
    exit_at_end: Annotated[
        bool,
        typer.Option("--exit-at-end", "-e", help="Stop when the group has consumed what is stored at the start."),
    ] = False,
    begin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="first|last|TIME",
            help="Where a new group begins: epoch milliseconds, or such as 2013-01-01T05:15:00Z.",
        ),
    ] = "first",
    message_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help="Instead of JSON: %t topic, %p queue id, %o offset, %k key, %s body, %S its bytes, %T store time, "
            "%g tags, %i message id, %%, and \\n \\t.",
        ),
    ] = None,
    lock_live_ms: Annotated[
        int | None,
        typer.Option(
            min=3000,
            metavar="MS",
            help="The broker's --lock-live-ms: the times of renewal and rebalance follow it in RocketMQ's proportion.",
        ),
    ] = None,
    profile: ProfileOption = Profile.ROCKETMQ,
    properties: Properties = None,
    verbose: Verbose = False,
    name_server: NameServer = _LOCAL,
) -> Work:
    """Print messages in order, a JSON object a line, until Ctrl-C."""
    from lockstep.cli.consume import ConsumeOptions, consume

    options = ConsumeOptions(
        name_server=name_server,
        topic=topic,
        group=group,
        tags=tags,
        count=count,
        exit_at_end=exit_at_end,
        begin=begin,
        format=message_format,
        lock_live_ms=lock_live_ms,
        profile=profile.value,
        properties=properties,
        verbose=verbose,
    )
    return consume(options)


@topics.command(name="list")
def _list_topics(
    show_all: Annotated[
        bool, typer.Option("--all", "-a", help="Those of brokers and groups too, retry and dead letters.")
    ] = False,
    output: Output = OutputFormat.TABLE,
    name_server: NameServer = _LOCAL,
) -> Work:
    """Topics and the number of their queues."""
    from lockstep.cli.topic import list_topics

    return list_topics(name_server, show_all, output)


@topics.command(name="create")
def _create_topic(
    topic: TopicName,
    queues: Annotated[int, typer.Option(min=1, max=1024, help="Queues on each broker.")] = 4,
    broker: Annotated[str | None, typer.Option(metavar="NAME", help="On this broker only.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Also change the number of queues of a topic.")] = False,
    name_server: NameServer = _LOCAL,
) -> Work:
    """Make a topic."""
    from lockstep.cli.topic import create_topic

    return create_topic(name_server, topic, queues, broker, force)


@topics.command(name="stats")
def _topic_stats(topic: TopicName, output: Output = OutputFormat.TABLE, name_server: NameServer = _LOCAL) -> Work:
    """Offsets of each queue, and when its first and its last message were stored."""
    from lockstep.cli.topic import topic_stats

    return topic_stats(name_server, topic, output)


@groups.command(name="list")
def _list_groups(output: Output = OutputFormat.TABLE, name_server: NameServer = _LOCAL) -> Work:
    """Groups that are online or have offsets stored."""
    from lockstep.cli.group.command import list_groups

    return list_groups(name_server, output)


@groups.command(name="describe")
def _describe_group(
    group: Annotated[str, typer.Argument(metavar="GROUP")],
    topic: Annotated[str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Only this topic.")] = None,
    output: Output = OutputFormat.TABLE,
    name_server: NameServer = _LOCAL,
) -> Work:
    """Members and how they consume; owner, offsets and lag of each queue; rates and means of each member."""
    from lockstep.cli.group.command import describe_group

    return describe_group(name_server, group, topic, output)


@groups.command(name="delete")
def _delete_group(
    group: Annotated[str, typer.Argument(metavar="GROUP")],
    with_topics: Annotated[
        bool, typer.Option("--topics", help="Its retry and dead-letter topics too, with what is in them.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, on a terminal.")] = False,
    name_server: NameServer = _LOCAL,
) -> Work:
    """Forget a group that is not online, with its offsets."""
    from lockstep.cli.group.command import delete_group

    return delete_group(name_server, group, with_topics, yes)


@locks.command(name="list")
def _list_locks(group: Group = None, output: Output = OutputFormat.TABLE, name_server: NameServer = _LOCAL) -> Work:
    """Who holds which queue, since when, and for how long yet."""
    from lockstep.cli.lock.command import list_locks

    return list_locks(name_server, group, output)


@locks.command(name="watch")
def _watch_locks(
    group: Group = None,
    renewals: Annotated[bool, typer.Option("--renewals", help="Report renewals too.")] = False,
    interval: Annotated[float, typer.Option(min=0.05, max=3600, help="Seconds between two looks.")] = 1.0,
    count: Annotated[int | None, typer.Option("--count", "-c", min=1, help="Stop after so many changes.")] = None,
    seconds: Annotated[float | None, typer.Option(min=0, help="Stop after so many seconds.")] = None,
    output: Output = OutputFormat.TABLE,
    name_server: NameServer = _LOCAL,
) -> Work:
    """See locks change hands: a live table, or off the terminal, and with JSON, a line a change."""
    from lockstep.cli.lock.command import WatchOptions, watch_locks

    options = WatchOptions(
        name_server=name_server,
        group=group,
        output=output,
        live=sys.stdout.isatty(),
        renewals=renewals,
        interval_s=interval,
        count=count,
        seconds=seconds,
    )
    return watch_locks(options)


def _only_one(*options: tuple[str, bool]) -> None:
    given = [name for name, present in options if present]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other; give one")
