"""The options that several commands have, and how their texts are read."""

from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import typer

from lockstep.cli.output import OutputFormat, UsageError
from lockstep.remoting.settings import with_properties

__all__ = ["Group", "NameServer", "Output", "Profile", "ProfileOption", "Properties", "Verbose", "Work", "configured"]

C = TypeVar("C")
# What a command returns: what runs on the event loop, or plain work, which a signal ends as it ends any program.
Work = Coroutine[Any, Any, None] | Callable[[], None]

NameServer = Annotated[
    str,
    typer.Option(
        "--name-server",
        "-n",
        envvar="NAMESRV_ADDR",
        metavar="HOST:PORT",
        help="Name servers, with ';' between several.",
    ),
]
Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="A table, or JSON.")]
Group = Annotated[str | None, typer.Option("--group", "-g", metavar="GROUP", help="Only this consumer group's.")]
Properties = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "-D",
        metavar="NAME=VALUE",
        help="A setting of the client, by its name here or in RocketMQ; may be repeated.",
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say on stderr what the client does.")]


class Profile(StrEnum):
    """The names of `lockstep.client.profiles`, which a command imports only when it runs."""

    ROCKETMQ = "rocketmq"
    ARTICLES = "articles"


ProfileOption = Annotated[
    Profile, typer.Option(help="Intervals as RocketMQ 4.9.8 has them, or as the articles give them where they differ.")
]


def configured(config: C, properties: list[str] | None) -> C:
    """`config` with `-D name=value` texts. Raises UsageError, SettingError."""
    pairs = {}
    for text in properties or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"-D {text!r}: write -D name=value")
        pairs[name] = value
    return with_properties(config, pairs)
