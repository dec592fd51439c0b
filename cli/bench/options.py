"""The options of `lockstep bench`."""

from dataclasses import dataclass
from typing import Annotated

from typer import Option

from lockstep.cli.option_values import duration_option
from lockstep.cli.options import PrintedOptions
from lockstep.cli.output import UsageError

__all__ = ["ConsumeBenchOptions", "HandoverBenchOptions", "LockOptions", "SendBenchOptions"]


@dataclass(frozen=True, kw_only=True)
class _BenchOptions(PrintedOptions):
    queues: Annotated[int, Option(min=1, max=1024, help="Queues of its topic, on each broker.")] = 8


@dataclass(frozen=True, kw_only=True)
class _SizedOptions(_BenchOptions):
    size: Annotated[int, Option(min=1, max=4 * 1024 * 1024, help="Bytes of a body.")] = 128


@dataclass(frozen=True, kw_only=True)
class LockOptions(_BenchOptions):
    fenced: Annotated[bool, Option("--fenced", help="Under fenced locks.")] = False
    lock_live_ms: Annotated[
        int | None, duration_option("--lock-live-ms", "The broker's --lock-live-ms.", bare="ms", least="3s")
    ] = None


@dataclass(frozen=True, kw_only=True)
class SendBenchOptions(_SizedOptions):
    messages: Annotated[int, Option(min=1, max=10_000_000, help="How many to send.")] = 10_000
    in_flight: Annotated[int, Option(min=1, max=10_000, help="Sends at once, each with a key of its own.")] = 64


@dataclass(frozen=True, kw_only=True)
class ConsumeBenchOptions(LockOptions, _SizedOptions):
    messages: Annotated[int, Option(min=1, max=10_000_000, help="How many are stored before it consumes.")] = 20_000
    live: Annotated[int, Option(min=0, max=1_000_000, help="How many are sent afterwards, one by one.")] = 1000
    rate: Annotated[float, Option(min=0.1, max=10_000, help="Of the live ones, at most so many a second.")] = 200


@dataclass(frozen=True, kw_only=True)
class HandoverBenchOptions(LockOptions):
    rounds: Annotated[int, Option(min=1, max=1000, help="How often a member joins and leaves.")] = 3
    work_ms: Annotated[
        int, duration_option("--work-ms", "How long the listener works.", bare="ms", most="10s", shown="1ms")
    ] = 1

    def __post_init__(self) -> None:
        if self.queues < 2:
            raise UsageError("--queues 1: two members need a queue each; give 2 or more")
