"""The commands of `lockstep bench`."""

import typer

from lockstep.cli.bench.options import ConsumeBenchOptions, HandoverBenchOptions, SendBenchOptions
from lockstep.cli.options import Work, command

__all__ = ["bench"]

bench = typer.Typer(
    help="Measure a cluster, Lockstep's or Apache's, with a topic and a group that are removed afterwards.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@command(bench, "send")
def _send(options: SendBenchOptions) -> Work:
    """Send messages with keys: the rate, and how long a send takes."""
    from lockstep.cli.bench.loads import bench_send

    return bench_send(options)


@command(bench, "consume")
def _consume(options: ConsumeBenchOptions) -> Work:
    """Consume in order: the rate of stored messages, then how long live ones take from the send to the listener."""
    from lockstep.cli.bench.loads import bench_consume

    return bench_consume(options)


@command(bench, "handover")
def _handover(options: HandoverBenchOptions) -> Work:
    """How long a queue rests between two owners, when a member joins and when it leaves.

    With RocketMQ's locks a round takes up to two minutes, as its clients rebalance each 20 s.
    """
    from lockstep.cli.bench.handover import bench_handover

    return bench_handover(options)
