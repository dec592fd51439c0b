"""`write` and `writeStream` of `format("lockstep")`: planned on the driver, sent by tasks, checked at commit.

Sent messages cannot be taken back. A write that fails has sent some rows already; when it runs again it sends all rows
again. A task or a micro-batch that Spark runs again repeats rows with the same marks (dedup.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lockstep.client.blocking import Addresses
from lockstep.client.errors import NoRouteError
from lockstep.pipeline.errors import OptionError, OrderError, errors_in_one_line
from lockstep.pipeline.options import Options, Use, parse_options
from lockstep.pipeline.sink.columns import SinkColumns, check_columns
from lockstep.pipeline.sink.keys import KeyEvidence, key_evidence, keys_in_two
from lockstep.pipeline.sink.ordering import in_order
from lockstep.pipeline.sink.task import TaskWriter, current_task
from lockstep.pipeline.sink.topics import writable_queues
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import RemotingError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LockstepStreamWriter", "LockstepWriter", "SinkCommit", "SinkPlan", "sink_plan"]


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """What a task needs; it pickles. `queues` are of the option topic, the same for every task.

    `sorts`: rows of a stream's micro-batch are sorted by orderBy; rows of a write are only checked.
    """

    options: Options
    columns: SinkColumns
    addresses: Addresses
    queues: tuple[MessageQueue, ...] = ()
    sorts: bool = False


@dataclass(frozen=True, slots=True)
class SinkCommit(WriterCommitMessage):
    """A task's report to the driver."""

    rows: int
    keys: KeyEvidence


def sink_plan(schema: StructType, given: Mapping[str, str], use: Use, *, overwrite: bool) -> SinkPlan:
    """Make the plan on the driver. Raises OptionError, ColumnError.

    For a write also TopicError, SendFailed, RemotingError.

    A stream's writer is planned a second time to commit, when servers may not answer: there the tasks raise the last
    three.
    """
    options = parse_options(given, use)
    if overwrite:
        raise OptionError('a topic cannot be overwritten: use mode("append"), in a stream outputMode append or update')
    columns = check_columns(schema, options)
    sorts = use is Use.WRITE_STREAM and bool(columns.order_by)
    plan = SinkPlan(options, columns, _addresses(options), sorts=sorts)
    if options.topic is None:
        return plan
    try:
        with plan.addresses.open() as client:
            return replace(plan, queues=writable_queues(client, options.topic))
    except (NoRouteError, RemotingError):
        if use is Use.WRITE:
            raise
        return plan


def _addresses(options: Options) -> Addresses:
    addresses = Addresses(
        tuple(map(str, options.name_servers)),
        timeout_ms=options.send_timeout_ms,
        retries=options.send_retries,
        retry_interval_ms=options.retry_interval_ms,
        credentials=options.credentials,
        tls=options.tls,
    )
    return addresses if options.group is None else addresses._replace(group=options.group)


class LockstepWriter(DataSourceArrowWriter):
    """A write. `write` runs in tasks; `commit` runs on the driver after all tasks have succeeded."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> SinkCommit:
        """Raises RowError, OrderError, SendFailed, TopicError, OptionError, RemotingError."""
        return _write(self._plan, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Raises OrderError when a key was in two partitions."""
        _check(self._plan, messages)


class LockstepStreamWriter(DataSourceStreamArrowWriter):
    """A micro-batch: a write with the number of the batch."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> SinkCommit:
        """Raises as LockstepWriter."""
        return _write(self._plan, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Raises OrderError when a key was in two partitions; the query ends then."""
        _check(self._plan, messages)


@errors_in_one_line()
def _write(plan: SinkPlan, batches: "Iterator[pa.RecordBatch]") -> SinkCommit:
    task = current_task()
    with plan.addresses.open() as client:
        writer = TaskWriter(client, plan.options, plan.columns, plan.queues, task)
        for batch in in_order(batches, plan.columns) if plan.sorts else batches:
            writer.add(batch)
        writer.finish()
    keys = writer.keys() if plan.options.check_keys else ()
    return SinkCommit(writer.rows, key_evidence(task.partition, keys))


@errors_in_one_line()
def _check(plan: SinkPlan, messages: Sequence[WriterCommitMessage | None]) -> None:
    if not plan.options.check_keys:
        return
    fault = keys_in_two([message.keys for message in messages if isinstance(message, SinkCommit)])
    if fault is not None:
        raise OrderError(
            f"{fault}: their rows are sent already, in an unknown order. Send"
            " lockstep.pipeline.sink.ordering.ordered(df, key, order_by), or set option checkKeys to false where order"
            " does not matter"
        )
