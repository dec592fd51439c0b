"""The commands of `lockstep-pipeline`, and the job of each. Spark is imported only when a command runs."""

import typer

from lockstep.cli.options import command, pairs
from lockstep.cli.output import UsageError, print_rows
from lockstep.client.blocking import Addresses
from lockstep.pipeline.cli.options import AuditOptions, CompareOptions, LagOptions, PublishOptions, SweepOptions
from lockstep.pipeline.jobs.publish import EventColumns
from lockstep.protocol.names import check_group, check_topic
from lockstep.remoting.settings import parse_addresses

__all__ = ["app"]

_STATUS = {"in order": 0, "not in order": 3, "undecided": 4}

app = typer.Typer(
    name="lockstep-pipeline",
    help="Spark: publish a table, audit the order of what was consumed, watch a group's lag, sweep and compare runs.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@command(app, "publish")
def _publish(options: PublishOptions) -> None:
    """Send a raw table as keyed events, in order."""
    from lockstep.pipeline.jobs.publish import SentCount, publish, read_raw, transform
    from lockstep.pipeline.spark.progress import JobProgress

    topic = options.topic
    check_topic(topic)
    sink = {"nameServer": options.name_server, **pairs(options.write_option, "--write-option")}
    reading = pairs(options.read_option, "--read-option")
    try:
        query = None if options.query is None else options.query.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--query {options.query}: {error.strerror}") from None
    columns = EventColumns(options.key, options.order_by, options.value or (), options.tags)
    with (
        SentCount(options.name_server, topic) as sent,
        options.session("publish") as spark,
        JobProgress(spark, f"publish to {topic}", count=sent.text),
    ):
        raw = read_raw(spark, options.paths, options.kind, options=reading, row_column=options.row_column)
        events = publish(transform(raw, columns, query=query), topic, sink)
    print_rows(("topic", "events"), [{"topic": topic, "events": events}], options.output)


@command(app, "audit")
def _audit(options: AuditOptions) -> None:
    """Judge consumers' traces: was every message handled in order, and none lost?"""
    with options.session("audit") as spark:
        from lockstep.pipeline.cli.audit import run_audit  # it imports PySpark, which the session has checked

        verdict = run_audit(spark, options)
    raise typer.Exit(_STATUS[verdict])


@command(app, "lag")
def _lag(options: LagOptions) -> None:
    """Watch how far a group is behind in each queue."""
    from lockstep.pipeline.cli.lag import run_lag
    from lockstep.pipeline.jobs.lag import Watched

    for name in options.topic:
        check_topic(name)
    check_group(options.group)
    from lockstep.client.credentials import credentials_of_environment
    from lockstep.client.tls import tls_of_environment

    names = tuple(map(str, parse_addresses(options.name_server)))
    servers = Addresses(names, credentials=credentials_of_environment(), tls=tls_of_environment())
    watched = Watched(servers, options.group, tuple(options.topic))
    with options.session("lag") as spark:
        run_lag(spark, watched, options)


@command(app, "sweep")
def _sweep(options: SweepOptions) -> None:
    """Run an experiment of the simulator with many seeds, on all executors; lockstep-sim sweep does it on one machine.

    Exit status 1: a seed failed, or what the sweep is about happened in fewer than 5 % of the seeds.
    """
    from lockstep.pipeline.cli.sweep import run_sweep
    from lockstep.simulation.lab.registry import UnknownExperimentError, find_experiment

    try:
        find_experiment(options.name)
    except UnknownExperimentError as error:
        raise UsageError(str(error)) from None
    with options.session("sweep") as spark:
        good = run_sweep(spark, options)
    raise typer.Exit(0 if good else 1)


@command(app, "compare")
def _compare(options: CompareOptions) -> None:
    """Run a story in several ways with many seeds, on all executors; lockstep-sim compare does it on one machine.

    Exit status 1: a run did not reach its end.
    """
    from lockstep.pipeline.cli.compare import run_compare
    from lockstep.simulation.lab.registry import UnknownExperimentError
    from lockstep.simulation.search.ways import Base, read_ways, story_of

    base = Base(options.name)
    try:
        ways = read_ways(options.with_ or ())
        for way in ways:
            story_of(base, way)
    except (UnknownExperimentError, ValueError) as error:
        raise UsageError(str(error)) from None
    with options.session("compare") as spark:
        good = run_compare(spark, base, ways, options)
    raise typer.Exit(0 if good else 1)
