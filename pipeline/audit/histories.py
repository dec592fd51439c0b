"""What each group did with each queue, as rows in the order of time with what stood before each: the *facts*.

A queue's history in one group and one store is named by a number, `h`; an ownership period by `p`, a client by `c`;
`queue_names` and `period_names` say what they stand for. One window over all of a period and one over all of a
history give every rule what it needs, so that what follows looks at the exceptions alone.
"""

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as fn

__all__ = ["ORDER", "facts", "of_clients", "period_names", "present_generation", "queue_names", "queue_records"]

_STATUS = {"SUSPEND_CURRENT_QUEUE_A_MOMENT": "S", "RECONSUME_LATER": "L", "ROLLBACK": "R", "COMMIT": "C"}
_ORDERING = {"key": "K", "none": "N"}
ORDER = ("time_ns", "source", "line")
_QUEUE = ("history", "group", "topic", "broker", "queue_id")
_OF_PERIOD = ("acquired", "positioned", "handled", "committed", "lock_lost", "dropped")
_OF_QUEUE = (*_OF_PERIOD, "stored", "reset", "dead_lettered", "sent_back")


def of_clients(events: DataFrame) -> DataFrame:
    """The records about queues, but of groups and topics that no client's record names: a broker tells of them all."""
    place = ["history", "group", "topic"]
    records = events.where(fn.col("event").isin(*_OF_QUEUE))
    took_part = records.where("client_id is not null").select(*place).distinct()
    return records.join(fn.broadcast(took_part), place, "left_semi")


def queue_records(events: DataFrame, restarts: DataFrame | None) -> DataFrame:
    """The records about queues with h, p and c. `restarts`: (history, marks), when stores were emptied; None: never."""
    records = events.where(fn.col("event").isin(*_OF_QUEUE)).withColumn(
        "p", fn.when(fn.col("event").isin(*_OF_PERIOD), fn.xxhash64("client_id", fn.coalesce("period", fn.lit(0))))
    )
    records = records.withColumn("generation", fn.lit(0)) if restarts is None else _generations(records, restarts)
    return records.withColumn("h", fn.xxhash64(*_QUEUE, "generation")).withColumn("c", fn.xxhash64("client_id"))


def present_generation(events: DataFrame, restarts: DataFrame) -> DataFrame:
    """The records with `present`: how often the store of their broker had been emptied by then."""
    stands = fn.struct(*ORDER)
    earlier = fn.filter(
        "marks",
        lambda mark: (mark["broker"].isNull() | (mark["broker"] == fn.col("broker"))) & (mark["at"] < stands),
    )
    present = fn.coalesce(fn.size(earlier), fn.lit(0))
    joined = events.join(fn.broadcast(restarts), "history", "left")
    return joined.withColumn("present", fn.when(fn.col("marks").isNull(), 0).otherwise(present)).drop("marks")


def _generations(records: DataFrame, restarts: DataFrame) -> DataFrame:
    """A period lives where it was born; what has no period, and the target of a reset, is the present store."""
    stores = present_generation(records, restarts)
    home = Window.partitionBy(*_QUEUE, "client_id", "period")
    born = fn.min_by("present", fn.struct(*ORDER)).over(home)
    homed = stores.withColumn("generation", fn.when(fn.col("period").isNull(), fn.col("present")).otherwise(born))
    elsewhere = (fn.col("event") == "reset") & (fn.col("generation") != fn.col("present"))
    again = homed.where(elsewhere).withColumn("generation", fn.col("present"))
    return homed.unionByName(again).drop("present")


def queue_names(records: DataFrame) -> DataFrame:
    """(h, history, group, topic, broker, queue_id, generation), a row a history of a queue."""
    return records.select("h", *_QUEUE, "generation").distinct()


def period_names(records: DataFrame) -> DataFrame:
    """(p, client_id, period), a row an ownership period."""
    return (
        records.where("p is not null")
        .select("p", "client_id", fn.coalesce("period", fn.lit(0)).alias("period"))
        .distinct()
    )


def _handled() -> Column:
    return fn.col("event") == "handled"


def facts(records: DataFrame) -> DataFrame:
    """The rows that every rule reads; see the names below."""
    # Which serves both windows. With a number: else few large partitions are made of many small ones, and a window that
    # finds no room writes itself to disk piece by piece and must read all of these at once.
    partitions = records.sparkSession.conf.get("spark.sql.shuffle.partitions")
    assert partitions is not None, "it has a default"
    by_history = _narrow(records).repartition(int(partitions), "h")
    return _of_history(_of_period(by_history))


def _narrow(records: DataFrame) -> DataFrame:
    return records.select(
        "h", "p", "c", *ORDER, "event", "offset", "key", "wall_ms", "begin_wall_ms", "mono_ns", "begin_mono_ns",
        fn.xxhash64("host").alias("host"),
        fn.when(fn.col("msg_id").isNotNull(), fn.xxhash64("msg_id")).alias("msg"),
        _code("status", _STATUS, "O"),
        _code("ordering", _ORDERING, "Q"),
        (fn.col("begin_mono_ns") + fn.col("clock_ns")).alias("begin_ns"),
    )  # fmt: skip


def _code(name: str, codes: dict[str, str], other: str) -> Column:
    """A column of calls as a letter."""
    code = fn.lit(other)
    for value, letter in codes.items():
        code = fn.when(fn.col(name) == value, letter).otherwise(code)
    return fn.when(_handled(), code).alias(name)


def _spans(*partition: str) -> tuple[WindowSpec, WindowSpec]:
    """All rows before this one, and all up to and with it."""
    window = Window.partitionBy(*partition).orderBy(*ORDER)
    return (
        window.rowsBetween(Window.unboundedPreceding, -1),
        window.rowsBetween(Window.unboundedPreceding, Window.currentRow),
    )


def _last(what: Column, where: Column, span: WindowSpec) -> Column:
    return fn.last(fn.when(where, what), ignorenulls=True).over(span)


def _count(what: Column, span: WindowSpec) -> Column:
    return fn.coalesce(fn.sum(what.cast("long")).over(span), fn.lit(0))


def _of_period(rows: DataFrame) -> DataFrame:
    """What a period did before: born, is_position, handled_before, expected, prev, call_first, pos, assigns."""
    earlier, so_far = _spans("h", "p")
    positioned, owned = fn.col("event") == "positioned", fn.col("p").isNotNull()
    stands = fn.when(_handled(), fn.col("offset") + 1).when(positioned, fn.col("offset"))
    rows = rows.withColumns({
        "born": owned & (fn.count(fn.lit(1)).over(so_far) == 1),
        "handled_before": _count(_handled(), earlier),
        "expected": fn.last(stands, ignorenulls=True).over(earlier),
        "prev": _last(fn.struct("offset", "p", "wall_ms", "source", "line", "status"), _handled(), earlier),
        "prev_call": _last(fn.struct("begin_mono_ns"), _handled(), earlier),
    })  # fmt: skip
    new_call = _handled() & ~fn.coalesce(fn.col("begin_mono_ns") == fn.col("prev_call.begin_mono_ns"), fn.lit(False))
    rows = rows.withColumns({
        "is_position": positioned | (_handled() & fn.col("expected").isNull()),
        "call_first": _last(fn.col("offset"), new_call, earlier),
    }).drop("prev_call")  # fmt: skip
    assigns = fn.col("is_position") | fn.coalesce(fn.col("status") == "C", fn.lit(False))
    return rows.withColumns({
        "is_assign": assigns,
        "pos": _count(fn.col("is_position"), so_far),
        "assigns_before": _count(assigns, earlier),
        "prev_status": fn.col("prev.status"),
        "expected": fn.when(fn.col("is_position"), fn.col("offset")).otherwise(fn.col("expected")),
    })  # fmt: skip


def _of_history(rows: DataFrame) -> DataFrame:
    """What the queue's history was before: max_before, newest, owner, mark (the last commit, reset or position) ..."""
    earlier, so_far = _spans("h")
    event, is_position = fn.col("event"), fn.col("is_position")
    known = event.isin("positioned", "reset", "stored")
    call = _handled() & fn.col("begin_mono_ns").isNotNull() & (fn.col("ordering") != "N")
    record = fn.struct("event", "offset", "p", "wall_ms", "source", "line")
    rows = rows.withColumns({
        "max_before": fn.max(fn.when(_handled(), fn.col("offset"))).over(earlier),
        "newest": _last(fn.col("p"), fn.col("born"), so_far),
        "owner": _last(fn.struct("p", "c"), is_position, earlier),
        "mark": _last(record, event.isin("committed", "reset", "positioned"), earlier),
        "after_reset": _last(event == "reset", is_position | (event == "reset"), earlier),
        "start_before": fn.min(fn.when(is_position, fn.col("offset"))).over(earlier),
        "known": _last(record, known, earlier),
        "known_count": _count(known, earlier),
        "acknowledged": _count(event == "stored", earlier) > 0,
        "prev_call": _last(fn.struct("p", "host", "time_ns", "wall_ms"), call, earlier),
    })  # fmt: skip
    prev = fn.col("prev_call")
    return rows.withColumns({
        "other_end_ns": _last(prev["time_ns"], call & (prev["p"] != fn.col("p")), so_far),
        "other_host_end_ms": _last(prev["wall_ms"], call & (prev["host"] != fn.col("host")), so_far),
    }).drop("prev_call")  # fmt: skip
