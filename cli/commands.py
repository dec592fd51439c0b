"""The commands of `lockstep`: which options a command takes, and which function does its work.

A command returns work for `lockstep.cli.app` to run. The module of that work is imported only when its command is
called: `lockstep --help` imports none of them.
"""

from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from lockstep.cli.access import AccessKey, SecretKey, Tls, TlsCa, TlsCert, TlsKey, use_account, use_tls
from lockstep.cli.bench.commands import bench
from lockstep.cli.consume.options import ConsumeOptions
from lockstep.cli.context.contexts import ContextFile
from lockstep.cli.context.defaults import apply_context
from lockstep.cli.context_commands import context
from lockstep.cli.group.options import GroupWatchOptions
from lockstep.cli.options import (
    DumpOptions,
    FindOptions,
    GetOptions,
    Group,
    HandOptions,
    MessageType,
    NameServer,
    Output,
    ProduceOptions,
    ResetOptions,
    SeekOptions,
    Shell,
    TailOptions,
    TopicOnly,
    WatchOptions,
    Why,
    Work,
    Yes,
    command,
)
from lockstep.cli.output import OutputFormat, UsageError
from lockstep.cli.trace.commands import trace
from lockstep.remoting.host.os_storage import OsStorage

__all__ = ["app", "root"]

_LOCAL = "127.0.0.1:9876"


def _typer(help_text: str, **settings: Any) -> typer.Typer:
    return typer.Typer(help=help_text, no_args_is_help=True, rich_markup_mode=None, **settings)


def _noun(name: str, help_text: str) -> typer.Typer:
    group = _typer(help_text)
    app.add_typer(group, name=name)
    return group


app = _typer(
    "Talk to a Lockstep broker or a RocketMQ cluster.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_MESSAGE = _noun(
    "message", "Messages: get one by its id, find those of a key or a place, tail a topic, hand one to a listener."
)
_TOPIC = _noun("topic", "Topics: list, describe, create, stats, delete.")
_GROUP = _noun(
    "group",
    "Consumer groups: list, describe (members, queues, statistics), deliveries, watch the lag, create, update, delete.",
)
_OFFSET = _noun("offset", "A group's offsets: show them, reset them to a time, seek one.")
_LOCK = _noun("lock", "Queue locks: list, watch. Of Lockstep brokers only: RocketMQ has no such call.")
_STORE = _noun(
    "store", "The folder of a broker's store, RocketMQ's or ours, that no broker has open: inspect, verify, dump."
)
app.add_typer(trace, name="trace")
app.add_typer(context, name="context")
app.add_typer(bench, name="bench")

TopicName = Annotated[str, typer.Argument(metavar="TOPIC")]
Fifo = Annotated[
    bool | None,
    typer.Option("--fifo/--no-fifo", help="Clients of RocketMQ 5 get its messages in order: consumeMessageOrderly."),
]
Retries = Annotated[int | None, typer.Option(min=0, help="After so many a message becomes a dead letter; 16 when new.")]
GroupName = Annotated[str, typer.Argument(metavar="GROUP")]
Folder = Annotated[str, typer.Argument(metavar="DIR", help="What the broker was given as --data-dir.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lockstep {version('lockstep-mq')}")
        raise typer.Exit


def root(
    call: typer.Context,
    context_name: Annotated[
        str | None,
        typer.Option("--context", envvar="LOCKSTEP_CONTEXT", metavar="NAME", help="A cluster of `context list`."),
    ] = None,
    access_key: AccessKey = None,
    secret_key: SecretKey = None,
    tls: Tls = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The options of `lockstep` itself."""
    use_account(access_key, secret_key)
    use_tls(tls, tls_ca, tls_cert, tls_key)
    apply_context(call, ContextFile(OsStorage()), context_name)


@command(app, "produce")
def _produce(options: ProduceOptions) -> Work:
    """Send a message for each line of stdin; a line is a JSON object.

    With -o json the result of each is a line on stdout.
    """
    from lockstep.cli.produce.command import produce

    return produce(options)


@command(app, "consume")
def _consume(options: ConsumeOptions) -> Work:
    """Print messages in order, a JSON object a line, until Ctrl-C."""
    from lockstep.cli.consume.command import consume

    return consume(options)


@app.command("doctor")
def _doctor(
    group: Group = None,
    output: Output = OutputFormat.TABLE,
    name_server: NameServer = _LOCAL,
    what_if: Annotated[
        str | None,
        typer.Option(metavar="STORY", help="What would deploy, scale-out, ... cost? Plays it with what the group has."),
    ] = None,
    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with", metavar="NAME=VALUE", help="For --what-if: what shall differ, as at_once=2 or ready=30s."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="For --what-if: how many runs.")] = 20,
) -> Work:
    """Look at a live cluster, Lockstep's or Apache's, and say what will break order.

    Exit status: 0: nothing was found, 3: warnings, 4: order will break, 1: no answer, or a run failed.
    """
    if what_if is not None:
        from lockstep.cli.what_if import Question, answer

        if group is None:
            raise UsageError("--what-if is about one group: name it with --group")
        return answer(Question(what_if, group, tuple(with_ or ()), seeds), name_server, output)
    if with_:
        raise UsageError("--with is for --what-if: name a story there")
    from lockstep.cli.doctor import doctor

    return doctor(name_server, group, output)


@app.command("console")
def _console(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where the pages are; 0: any free port.")] = 8088,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Listen here; elsewhere than on loopback with --login.")
    ] = "127.0.0.1",
    name_server: NameServer = _LOCAL,
    snapshot: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Write the page Order of this moment into one file, and end.")
    ] = None,
    cluster: Annotated[
        list[str] | None, typer.Option(metavar="CONTEXT", help="Show the cluster of this context; repeat for several.")
    ] = None,
    all_contexts: Annotated[bool, typer.Option("--all-contexts", help="Show the clusters of all contexts.")] = False,
    login: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Ask for an account of this plain_acl.yml; only its admins change something."
        ),
    ] = None,
    no_login: Annotated[bool, typer.Option("--no-login", help="Ask for none, wherever it listens.")] = False,
) -> Work:
    """Serve pages that show owners of queues, groups, topics, messages, brokers, live, until Ctrl-C."""
    from lockstep.cli.console import console

    return console(
        name_server, host, port, snapshot, cluster or (), all_contexts=all_contexts, login=login, no_login=no_login
    )


@app.command("status")
def _status(
    behind: Annotated[
        str, typer.Option(metavar="DURATION", help="A group is not well when a message waits longer.")
    ] = "1m",
    output: Output = OutputFormat.TABLE,
    name_server: NameServer = _LOCAL,
) -> Work:
    """Look once at a cluster, Lockstep's or Apache's: brokers, topics, groups, lag, locks, and what is not well.

    Exit status: 0: all is well, 3: something is not, 1: no name server answers.
    """
    from lockstep.cli.status import status

    return status(name_server, behind, output)


@app.command("completion")
def _completion(shell: Annotated[Shell, typer.Argument(help="The shell whose script is printed.")]) -> Work:
    """Print a script that completes lockstep, lockstep-broker, lockstep-sim and lockstep-pipeline."""
    from lockstep.cli.completion import print_script

    return partial(print_script, shell)


@_TOPIC.command(name="list")
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


@_TOPIC.command(name="describe")
def _describe_topic(topic: TopicName, output: Output = OutputFormat.TABLE, name_server: NameServer = _LOCAL) -> Work:
    """Queues, type, permissions, attributes and messages on each broker, and the groups that consume it."""
    from lockstep.cli.topic import describe_topic

    return describe_topic(name_server, topic, output)


@_TOPIC.command(name="create")
def _create_topic(
    topic: TopicName,
    queues: Annotated[int, typer.Option(min=1, max=1024, help="Queues on each broker.")] = 4,
    broker: Annotated[str | None, typer.Option(metavar="NAME", help="On this broker only.")] = None,
    message_type: Annotated[
        MessageType | None, typer.Option("--type", help="What clients of RocketMQ 5 may send to it; normal when new.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also change the number of queues of a topic.")] = False,
    name_server: NameServer = _LOCAL,
) -> Work:
    """Make a topic."""
    from lockstep.cli.topic import create_topic

    return create_topic(name_server, topic, queues, broker, message_type and message_type.upper(), force)


@_TOPIC.command(name="stats")
def _topic_stats(topic: TopicName, output: Output = OutputFormat.TABLE, name_server: NameServer = _LOCAL) -> Work:
    """Offsets of each queue, and when its first and its last message were stored."""
    from lockstep.cli.topic import topic_stats

    return topic_stats(name_server, topic, output)


@_TOPIC.command(name="delete")
def _delete_topic(topic: TopicName, yes: Yes = False, name_server: NameServer = _LOCAL) -> Work:
    """Delete a topic that no online group consumes, with its messages and the offsets that groups have of it."""
    from lockstep.cli.topic import delete_topic

    return delete_topic(name_server, topic, yes)


@_GROUP.command(name="list")
def _list_groups(output: Output = OutputFormat.TABLE, name_server: NameServer = _LOCAL) -> Work:
    """Groups that are online or have offsets stored."""
    from lockstep.cli.group.command import list_groups

    return list_groups(name_server, output)


@_GROUP.command(name="describe")
def _describe_group(
    group: GroupName,
    topic: TopicOnly = None,
    why: Why = False,
    output: Output = OutputFormat.TABLE,
    name_server: NameServer = _LOCAL,
) -> Work:
    """Members and how they consume; owner, offsets and lag of each queue; rates and means of each member."""
    from lockstep.cli.group.command import describe_group

    return describe_group(name_server, group, topic, output, why=why)


@_GROUP.command(name="create")
def _create_group(
    group: GroupName, fifo: Fifo = None, retries: Retries = None, name_server: NameServer = _LOCAL
) -> Work:
    """Make a group on all brokers; without it a group is made when its first member comes, and is not in order."""
    from lockstep.cli.group.settings import put_group

    return put_group(name_server, group, fifo, retries, is_new=True)


@_GROUP.command(name="update")
def _update_group(
    group: GroupName, fifo: Fifo = None, retries: Retries = None, name_server: NameServer = _LOCAL
) -> Work:
    """Change a group; what is not given stays."""
    from lockstep.cli.group.settings import put_group

    return put_group(name_server, group, fifo, retries, is_new=False)


@_GROUP.command(name="deliveries")
def _list_deliveries(group: GroupName, output: Output = OutputFormat.TABLE, name_server: NameServer = _LOCAL) -> Work:
    """Messages that a group in order popped and did not acknowledge: who has them, and until when."""
    from lockstep.cli.group.deliveries import list_deliveries

    return list_deliveries(name_server, group, output)


@command(_GROUP, "watch")
def _watch_group(options: GroupWatchOptions) -> Work:
    """See the lag of a group: a live table, or off the terminal a line a look, with JSON its queues too."""
    from lockstep.cli.group.watch import watch_group

    return watch_group(options)


@_GROUP.command(name="delete")
def _delete_group(
    group: GroupName,
    with_topics: Annotated[
        bool, typer.Option("--topics", help="Its retry and dead-letter topics too, with what is in them.")
    ] = False,
    yes: Yes = False,
    name_server: NameServer = _LOCAL,
) -> Work:
    """Forget a group that is not online, with its offsets."""
    from lockstep.cli.group.command import delete_group

    return delete_group(name_server, group, with_topics, yes)


@_LOCK.command(name="list")
def _list_locks(group: Group = None, output: Output = OutputFormat.TABLE, name_server: NameServer = _LOCAL) -> Work:
    """Who holds which queue, since when, and for how long yet."""
    from lockstep.cli.lock.command import list_locks

    return list_locks(name_server, group, output)


@command(_LOCK, "watch")
def _watch_locks(options: WatchOptions) -> Work:
    """See locks change hands: a live table, or off the terminal, and with JSON, a line a change."""
    from lockstep.cli.lock.command import watch_locks

    return watch_locks(options)


@command(_MESSAGE, "get")
def _get_message(options: GetOptions) -> Work:
    """A message by its id, whole, and which groups have consumed it."""
    from lockstep.cli.message.message import get_message

    return get_message(options)


@command(_MESSAGE, "hand")
def _hand_message(options: HandOptions) -> Work:
    """Have a member's listener called with a message once more, whatever the offsets are; status 1 when it fails."""
    from lockstep.cli.message.message import hand_message

    return hand_message(options)


@command(_MESSAGE, "find")
def _find_messages(options: FindOptions) -> Work:
    """Messages of a key, oldest first, or the one at an offset of a queue."""
    from lockstep.cli.message.message import find_messages

    return find_messages(options)


@command(_MESSAGE, "tail")
def _tail_messages(options: TailOptions) -> Work:
    """The last messages of a topic, a line each, without joining a group; -o json prints JSON objects."""
    from lockstep.cli.message.tail import tail_messages

    return tail_messages(options)


@_OFFSET.command(name="show")
def _show_offsets(
    group: GroupName, topic: TopicOnly = None, output: Output = OutputFormat.TABLE, name_server: NameServer = _LOCAL
) -> Work:
    """What a group has committed of each queue, between the first and the next message, and its lag."""
    from lockstep.cli.offset import show_offsets

    return show_offsets(name_server, group, topic, output)


@command(_OFFSET, "reset")
def _reset_offsets(options: ResetOptions) -> Work:
    """Put a group elsewhere in a topic: online members are notified, else the offsets are stored."""
    from lockstep.cli.offset import reset_offsets

    return reset_offsets(options)


@command(_OFFSET, "seek")
def _seek_offset(options: SeekOptions) -> Work:
    """Set the offset of one queue, while no member of the group is online."""
    from lockstep.cli.offset import seek_offset

    return seek_offset(options)


@_STORE.command(name="inspect")
def _inspect_store(folder: Folder, output: Output = OutputFormat.TABLE) -> Work:
    """What is in it: the log, queues, groups. Quick, as messages are not read."""
    from lockstep.cli.store.inspect import inspect_store

    return partial(inspect_store, folder, output)


@_STORE.command(name="verify")
def _verify_store(folder: Folder, output: Output = OutputFormat.TABLE) -> Work:
    """Read everything, and list what is damaged by file and position. Exit status 1 when something is.

    What a crash leaves unfinished, and a broker puts in order when it starts, is listed too but is no damage.
    """
    from lockstep.cli.store.inspect import verify_store

    return partial(verify_store, folder, output)


@command(_STORE, "dump")
def _dump_store(options: DumpOptions) -> Work:
    """Print messages in the order of the log, one JSON object a line as `lockstep consume` prints them."""
    from lockstep.cli.store.dump import dump_store

    return partial(dump_store, options)
