"""The arguments and options of the commands: each is written once, as a field of a dataclass.

A field has the option's name, type, help and default. `command` makes a command of a function that takes such a
dataclass. A rule about several options is in `__post_init__`.
"""

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import typer

from lockstep.cli.context.defaults import use_saved_access
from lockstep.cli.option_values import QueueName, duration_option, queue_option
from lockstep.cli.output import OutputFormat, UsageError
from lockstep.remoting.settings import with_properties

__all__ = [
    "DumpOptions",
    "FindOptions",
    "GetOptions",
    "Group",
    "HandOptions",
    "MessageType",
    "NameServer",
    "OptionalNameServer",
    "Output",
    "PrintedOptions",
    "ProduceOptions",
    "Profile",
    "Properties",
    "ResetOptions",
    "SeekOptions",
    "ServerOptions",
    "Shell",
    "TailOptions",
    "Topic",
    "TopicOnly",
    "WatchOptions",
    "Why",
    "Work",
    "Yes",
    "command",
    "configured",
    "pairs",
]

C = TypeVar("C")
T = TypeVar("T")
R = TypeVar("R")
# What a command returns: a coroutine for the event loop, or a plain function, which a signal ends as usual.
Work = Coroutine[Any, Any, None] | Callable[[], None]

_Option = typer.Option

# Options of several commands ----------------------------------------------------------------------------------

_SERVERS = _Option(
    "--name-server",
    "-n",
    envvar="NAMESRV_ADDR",
    metavar="HOST:PORT",
    callback=use_saved_access,
    help="Name servers, with ';' between several.",
)
NameServer = Annotated[str, _SERVERS]
OptionalNameServer = Annotated[str | None, _SERVERS]
Output = Annotated[OutputFormat, _Option("--output", "-o", help="A table, or JSON.")]
Group = Annotated[str | None, _Option("--group", "-g", metavar="GROUP", help="Only this consumer group's.")]
TopicOnly = Annotated[str | None, _Option("--topic", "-t", metavar="TOPIC", help="Only this topic.")]
Why = Annotated[bool, _Option("--why", help="Also what each member's rebalances did with each queue, and why.")]
Yes = Annotated[bool, _Option("--yes", "-y", help="Do not ask, on a terminal.")]
Properties = Annotated[
    list[str] | None,
    _Option(
        "--property",
        "-D",
        metavar="NAME=VALUE",
        help="A setting of the client, by its name here or in RocketMQ; may be repeated.",
    ),
]
Topic = Annotated[str, typer.Argument(metavar="TOPIC")]
_LookIn = Annotated[str, _Option("--topic", "-t", metavar="TOPIC", help="The topic to look in.")]
_MessageId = Annotated[str, typer.Argument(metavar="ID", help="An offset message id, or a msg_id with --topic.")]
_OfTopic = Annotated[
    str | None, _Option("--topic", "-t", metavar="TOPIC", help="Of this topic: the id is the message's own.")
]


class Profile(StrEnum):
    """The names of `lockstep.client.profiles`, which a command imports only when it runs."""

    ROCKETMQ = "rocketmq"
    ARTICLES = "articles"


class MessageType(StrEnum):
    """Types of topics in RocketMQ 5."""

    NORMAL = "normal"
    FIFO = "fifo"
    DELAY = "delay"
    TRANSACTION = "transaction"
    UNSPECIFIED = "unspecified"


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    name_server: NameServer = "127.0.0.1:9876"


@dataclass(frozen=True, kw_only=True)
class PrintedOptions(ServerOptions):
    output: Output = OutputFormat.TABLE


def _only_one(*options: tuple[str, object]) -> None:
    given = [name for name, value in options if value not in (None, False)]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other; give one")


# lockstep produce -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ProduceOptions(PrintedOptions):
    topic: Topic
    files: Annotated[
        list[typer.FileBinaryRead] | None,
        _Option("--file", metavar="PATH", help="Read this file instead of stdin; may be repeated."),
    ] = None
    key: Annotated[
        str | None,
        _Option("--key", "-k", metavar="KEY", help="Sharding key of every message: one key, one queue, in order."),
    ] = None
    key_field: Annotated[str | None, _Option(metavar="NAME", help="The sharding key is this field of each line.")] = (
        None
    )
    key_delimiter: Annotated[
        str | None,
        _Option("--key-delimiter", "-K", metavar="TEXT", help="Lines are KEY, this text (as : or \\t), and the body."),
    ] = None
    message_groups: Annotated[
        bool, _Option("--message-groups", help="A key has the queue that RocketMQ 5 gives a message group.")
    ] = False
    body_field: Annotated[
        str | None, _Option(metavar="NAME", help="The body is this field of each line, not the whole line.")
    ] = None
    tags: Annotated[str | None, _Option(metavar="TAG", help="Tag of every message.")] = None
    keys: Annotated[
        str | None, _Option(metavar="WORDS", help="KEYS of every message, for `lockstep message find --keys`.")
    ] = None
    headers: Annotated[
        list[str] | None,
        _Option("--header", "-H", metavar="NAME=VALUE", help="A user property of every message; may be repeated."),
    ] = None
    delay_ms: Annotated[
        int,
        duration_option(
            "--delay", "Deliver every message so much later.", bare="s", least="1ms", most="72h", shown=False
        ),
    ] = 0
    text: Annotated[bool, _Option("--text", help="Lines are bodies as they are, JSON or not.")] = False
    envelope: Annotated[bool, _Option("--envelope", help="Lines are messages as `lockstep consume` prints them.")] = (
        False
    )
    in_flight: Annotated[int, _Option(min=1, max=10_000, help="Sends in flight at once; order is kept.")] = 64
    skip_bad_lines: Annotated[
        bool, _Option("--skip-bad-lines", help="Count lines that are no message instead of stopping.")
    ] = False
    output: Output = OutputFormat.TABLE
    properties: Properties = None

    def __post_init__(self) -> None:
        delimiter = ("--key-delimiter", self.key_delimiter)
        _only_one(("--key", self.key), ("--key-field", self.key_field), delimiter)
        _only_one(("--text", self.text), ("--envelope", self.envelope), ("--body-field", self.body_field))
        _only_one(("--text", self.text), ("--envelope", self.envelope), ("--key-field", self.key_field))
        _only_one(("--envelope", self.envelope), ("--body-field", self.body_field), delimiter)


# lockstep lock ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class WatchOptions(PrintedOptions):
    group: Group = None
    renewals: Annotated[bool, _Option("--renewals", help="Report renewals too.")] = False
    refusals: Annotated[bool, _Option("--refusals", help="Report clients that were refused a queue too.")] = False
    interval_ms: Annotated[
        int, duration_option("--interval", "Between two looks.", bare="s", least="50ms", most="1h", shown="1s")
    ] = 1000
    count: Annotated[int | None, _Option("--count", "-c", min=1, help="Stop after so many changes.")] = None
    life_ms: Annotated[int | None, duration_option("--seconds", "Stop after so long.", bare="s")] = None


# lockstep message ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GetOptions(PrintedOptions):
    message_id: _MessageId
    topic: _OfTopic = None


@dataclass(frozen=True, kw_only=True)
class HandOptions(PrintedOptions):
    message_id: _MessageId
    group: Annotated[str, _Option("--group", "-g", metavar="GROUP", help="The consumer group.")]
    client_id: Annotated[
        str | None, _Option("--client", metavar="ID", help="The member, as `group describe` names it; else any.")
    ] = None
    topic: _OfTopic = None
    yes: Yes = False


@dataclass(frozen=True, kw_only=True)
class FindOptions(PrintedOptions):
    """By `key` or `keys`, between two times, or at `offset` of `queue`."""

    topic: _LookIn
    key: Annotated[
        str | None,
        _Option("--key", "-k", metavar="KEY", help="Messages of this sharding key; queues are read from --begin on."),
    ] = None
    keys: Annotated[
        str | None, _Option(metavar="WORD", help="Messages whose KEYS have this word, by the index of the brokers.")
    ] = None
    begin: Annotated[
        str | None, _Option(metavar="TIME", help="With a key: stored at this time or later; '10m ago' will do.")
    ] = None
    end: Annotated[str | None, _Option(metavar="TIME", help="With a key: stored at this time or earlier.")] = None
    count_max: Annotated[int, _Option("--max", min=1, max=64, help="With a key: at most so many.")] = 64
    queue: Annotated[QueueName | None, queue_option("The message of this queue at --offset.")] = None
    offset: Annotated[int | None, _Option(min=0, help="The queue offset, with --queue.")] = None

    def __post_init__(self) -> None:
        if [self.key, self.keys, self.queue].count(None) != 2:
            raise UsageError("give one of --key (the sharding key), --keys (a word of KEYS), --queue with --offset")
        if (self.queue is None) != (self.offset is None):
            raise UsageError("--queue and --offset go together")
        if self.queue is not None and (self.begin is not None or self.end is not None):
            raise UsageError("--begin and --end are for --key and --keys")


@dataclass(frozen=True, kw_only=True)
class TailOptions(PrintedOptions):
    topic: _LookIn
    follow: Annotated[bool, _Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False
    begin: Annotated[
        str | None,
        _Option(
            "--from",
            metavar="first|last|TIME",
            help="Begin here instead of a few before the end: epoch milliseconds, 2013-01-01T05:15:00Z, '10m ago'.",
        ),
    ] = None
    tags: Annotated[
        str, _Option("--tag", "--tags", metavar="EXPRESSION", help="Tags to show, as in 'TagA || TagB'.")
    ] = "*"
    count: Annotated[
        int | None,
        _Option("--count", "-c", min=1, help="How many of the last ones (10); with --from, stop after so many."),
    ] = None
    queue: Annotated[QueueName | None, queue_option("Only this queue's messages.")] = None
    format: Annotated[
        str | None, _Option("--format", metavar="FORMAT", help="Print each as this, as `lockstep consume` does.")
    ] = None


# lockstep offset ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _ChangeOptions(PrintedOptions):
    dry_run: Annotated[bool, _Option("--dry-run", help="Show what would be, and change nothing.")] = False
    yes: Yes = False
    output: Output = OutputFormat.TABLE


@dataclass(frozen=True, kw_only=True)
class ResetOptions(_ChangeOptions):
    """To a time, earliest or latest, or with `to_offset` to one offset in each queue."""

    group: Annotated[str, typer.Argument(metavar="GROUP")]
    topic: Annotated[str, _Option("--topic", "-t", metavar="TOPIC", help="The topic whose offsets change.")]
    to_time: Annotated[
        str | None,
        _Option(
            metavar="TIME|earliest|latest",
            help="Epoch milliseconds, a time such as 2026-01-31T12:00, or '10m ago'; or one end.",
        ),
    ] = None
    to_offset: Annotated[
        int | None, _Option(min=0, metavar="OFFSET", help="This offset in every queue, or its nearest.")
    ] = None
    queues: Annotated[list[QueueName] | None, queue_option("Only this queue; may be repeated.")] = None
    force: Annotated[
        bool, _Option("--force", help="Also forward, over what was never consumed; also of an unknown group.")
    ] = False

    def __post_init__(self) -> None:
        if (self.to_time is None) == (self.to_offset is None):
            raise UsageError("give either --to-time or --to-offset")


@dataclass(frozen=True, kw_only=True)
class SeekOptions(_ChangeOptions):
    """`offset`: a number, earliest or latest."""

    group: Annotated[str, typer.Argument(metavar="GROUP")]
    topic: Annotated[str, _Option("--topic", "-t", metavar="TOPIC", help="The topic whose offsets change.")]
    queue: Annotated[QueueName, queue_option("The queue.")]
    offset: Annotated[str, _Option("--offset", metavar="OFFSET|earliest|latest", help="What is consumed next.")]
    force: Annotated[
        bool, _Option("--force", help="Also while the group is online, whose members may store theirs over it.")
    ] = False

    def __post_init__(self) -> None:
        text = self.offset
        if text not in ("earliest", "latest") and not (text.isascii() and text.isdigit() and len(text) < 20):
            raise UsageError(f"--offset {text!r}: give a number, earliest or latest")


# lockstep store -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DumpOptions:
    """Which messages, from queue offset `offset` on; None: all."""

    folder: Annotated[str, typer.Argument(metavar="DIR", help="What the broker was given as --data-dir.")]
    topic: TopicOnly = None
    queue: Annotated[int | None, _Option(min=0, help="Only the queue of this number.")] = None
    offset: Annotated[int, _Option(min=0, help="Begin at this queue offset.")] = 0
    count: Annotated[int | None, _Option("--count", "-c", min=1, help="Stop after so many messages.")] = None
    format: Annotated[
        str | None, _Option("--format", "-f", metavar="FORMAT", help="Print each as this, as `lockstep consume` does.")
    ] = None


# From options to a command --------------------------------------------------------------------------------------------


def command(app: typer.Typer, name: str) -> Callable[[Callable[[T], R]], Callable[[T], R]]:
    """Make a command of a function that takes one dataclass of options; its docstring is the help of the command.

    Help lists the fields of the class first, then those of its base classes.
    """

    def register(function: Callable[[T], R]) -> Callable[[T], R]:
        (parameter,) = inspect.signature(function).parameters.values()
        options = parameter.annotation
        fields = inspect.signature(options).parameters
        order = [field for kind in options.__mro__ for field in inspect.get_annotations(kind)]

        def run(call: typer.Context, **given: Any) -> R:
            for name in _unfit(options, given):
                if _is_of_context(call, name):
                    given[name] = fields[name].default
            return function(options(**given))

        run.__doc__ = function.__doc__
        parameters = [_CALL, *[fields[field] for field in dict.fromkeys(order)]]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        app.command(name=name)(run)
        return function

    return register


_CALL = inspect.Parameter("call", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)


def _unfit(options: type, given: dict[str, Any]) -> tuple[str, ...]:
    """Options which do not fit the others of this call, so that a context's defaults for them do not count."""
    unfit: Callable[[dict[str, Any]], tuple[str, ...]] | None = getattr(options, "unfit", None)
    return unfit(given) if unfit is not None else ()


def _is_of_context(call: typer.Context, name: str) -> bool:
    source = call.get_parameter_source(name)
    return source is not None and source.name == "DEFAULT_MAP"


def configured(config: C, properties: list[str] | None) -> C:
    """`config` with `-D name=value` texts. Raises UsageError, SettingError."""
    return with_properties(config, pairs(properties, "-D"))


def pairs(texts: list[str] | None, option: str, shape: str = "name=value") -> dict[str, str]:
    """`name=value` texts. Raises UsageError, with what the option's `shape` is."""
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {text!r}: write {option} {shape}")
        found[name] = value
    return found
