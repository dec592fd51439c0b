"""The options of `lockstep consume`."""

import re
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Annotated, Any, Final

from typer import Option

from lockstep.cli.option_values import QueueName, duration_option, queue_option
from lockstep.cli.options import Profile, Properties, ServerOptions, Topic
from lockstep.cli.output import UsageError

__all__ = ["ConsumeOptions", "Mode"]


class Mode(StrEnum):
    """How `lockstep consume` calls its listener."""

    ORDERLY = "orderly"  # one call a queue, in the order of offsets
    BY_KEY = "by-key"  # one call a sharding key
    CONCURRENT = "concurrent"  # without order


_OFFSET: Final = re.compile(r"-?[0-9]{1,19}|first|last")
_OF_GROUPS: Final = {
    "begin": "--from",
    "lock_live_ms": "--lock-live-ms",
    "fenced": "--fenced",
    "pop": "--pop",
    "profile": "--profile",
    "mode": "--mode",
    "work": "--work",
    "work_of": "--work-of",
    "fail": "--fail",
    "fail_key": "--fail-key",
    "suspend": "--suspend",
    "trace": "--trace",
    "properties": "-D",
}


@dataclass(frozen=True, kw_only=True)
class ConsumeOptions(ServerOptions):
    topic: Topic
    group: Annotated[str | None, Option("--group", "-g", metavar="GROUP", help="The consumer group to join.")] = None
    queue: Annotated[QueueName | None, queue_option("Read this queue, without a group.")] = None
    offset: Annotated[
        str | None,
        Option(metavar="N|-N|first|last", help="With --queue: begin here (first), or so many before the end."),
    ] = None
    tags: Annotated[str, Option(metavar="EXPRESSION", help="Tags to take, as in 'TagA || TagB'.")] = "*"
    count: Annotated[int | None, Option("--count", "-c", min=1, help="Stop after so many messages.")] = None
    exit_at_end: Annotated[
        bool, Option("--exit-at-end", "-e", help="Stop when the group has consumed what is stored at the start.")
    ] = False
    begin: Annotated[
        str,
        Option(
            "--from",
            metavar="first|last|TIME",
            help="Where a new group begins: epoch milliseconds, or such as 2013-01-01T05:15:00Z.",
        ),
    ] = "first"
    format: Annotated[
        str | None,
        Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help="Instead of JSON: %t topic, %p queue id, %o offset, %k key, %s body, %S its bytes, %T store time, "
            "%g tags, %i message id, %%, and \\n \\t.",
        ),
    ] = None
    lock_live_ms: Annotated[
        int | None,
        duration_option(
            "--lock-live-ms",
            "The broker's --lock-live-ms: the times of renewal and rebalance follow it in RocketMQ's proportion.",
            bare="ms",
            least="3s",
        ),
    ] = None
    fenced: Annotated[
        bool, Option("--fenced", help="Own queues under fenced locks; the brokers run with --lock-mode fenced.")
    ] = False
    pop: Annotated[
        bool,
        Option(
            "--pop", help="Own no queues: get messages for a time, as RocketMQ 5's POP; --mode says in which order."
        ),
    ] = False
    profile: Annotated[
        Profile, Option(help="Intervals as RocketMQ 4.9.8 has them, or as the articles give them where they differ.")
    ] = Profile.ROCKETMQ
    mode: Annotated[
        Mode, Option(help="One call at a time for each queue, or for each sharding key, or without order and locks.")
    ] = Mode.ORDERLY
    work: Annotated[
        str | None, Option(metavar="DURATION", help="The listener works so long on each message, as in 500ms.")
    ] = None
    work_of: Annotated[
        list[str] | None,
        Option(metavar="KEY=DURATION", help="So long on messages with this sharding key; may be repeated."),
    ] = None
    fail: Annotated[
        str | None, Option(metavar="N%", help="The listener fails with this chance, and gets the messages again.")
    ] = None
    fail_key: Annotated[
        list[str] | None,
        Option(metavar="KEY", help="It always fails for this sharding key; may be repeated."),
    ] = None
    suspend: Annotated[
        list[str] | None,
        Option(
            metavar="KEY=DURATION",
            help="The first call for each message with this sharding key suspends its queue so long; may be repeated.",
        ),
    ] = None
    trace: Annotated[str | None, Option(metavar="FILE", help="Record what is handled, for `lockstep trace check`.")] = (
        None
    )
    properties: Properties = None
    verbose: Annotated[bool, Option("--verbose", "-v", help="Say on stderr what the client does.")] = False

    def __post_init__(self) -> None:
        if (self.group is None) == (self.queue is None):
            raise UsageError("give either --group, or --queue to read one queue without a group")
        if self.queue is not None:
            self._check_without_group()
        elif self.offset is not None:
            raise UsageError("--offset is for --queue; where a new group begins is --from")
        if self.mode is Mode.CONCURRENT:
            if self.suspend:
                raise UsageError("--suspend is for --mode orderly and by-key: without order no queue is suspended")
            if self.fenced:
                raise UsageError("--fenced is for --mode orderly and by-key: without order no queue is locked")

        if self.pop:
            self._check_pop()

    def _check_pop(self) -> None:
        for option, given in (
            ("--fenced", self.fenced),
            ("--lock-live-ms", self.lock_live_ms),
        ):
            if given:
                raise UsageError(f"{option} is for queues that a consumer owns; with --pop it owns none")
        if self.trace is not None and self.mode is Mode.CONCURRENT:
            raise UsageError("--trace is for --mode orderly and by-key: with --pop a trace is judged for order")

    @classmethod
    def unfit(cls, given: dict[str, Any]) -> tuple[str, ...]:
        """Options that do not fit the others: a context's defaults for them do not count."""
        if given["queue"] is not None:
            return ("group", "fenced", "lock_live_ms")
        if given["pop"]:
            return ("fenced", "lock_live_ms")
        return ("fenced",) if given["mode"] is Mode.CONCURRENT else ()

    def _check_without_group(self) -> None:
        for field in fields(self):
            if field.name in _OF_GROUPS and getattr(self, field.name) != field.default:
                option = _OF_GROUPS[field.name]
                raise UsageError(f"{option} is for --group: with --queue a queue is read, and no group is joined")
        if self.offset is not None and _OFFSET.fullmatch(self.offset) is None:
            raise UsageError(f"--offset {self.offset!r}: give a number, -N for N before the end, first or last")

    @property
    def joined(self) -> str:
        """The group; there is one without --queue."""
        assert self.group is not None
        return self.group

    @property
    def works(self) -> bool:
        """Whether the listener does more than print, or is not called in the order of the queue."""
        given = (self.work, self.work_of, self.fail, self.fail_key, self.suspend)
        return self.mode is not Mode.ORDERLY or any(given)
