"""The facts of an audit: as many tasks as were asked for, since each must find room for what it has."""

import pytest
from pyspark.sql import SparkSession

from lockstep.pipeline.audit.histories import facts

NUMBERS = ("h", "p", "c", "time_ns", "source", "line", "offset", "wall_ms", "begin_wall_ms", "mono_ns", "begin_mono_ns",
           "clock_ns")  # fmt: skip
TEXTS = {"event": "handled", "key": "k", "host": "here", "msg_id": "m", "status": "SUCCESS", "ordering": "queue"}


@pytest.mark.parametrize("wanted", [2, 5])
def test_partitions_are_not_put_together(spark: SparkSession, wanted: int) -> None:
    """Spark makes one partition of small ones unless it is told how many there are to be."""
    texts = [f"'{value}' as `{name}`" for name, value in TEXTS.items()]
    records = spark.range(50).selectExpr(*(f"id as `{name}`" for name in NUMBERS), *texts)
    before = spark.conf.get("spark.sql.shuffle.partitions")
    assert before is not None
    spark.conf.set("spark.sql.shuffle.partitions", str(wanted))
    try:
        rows = facts(records)
        assert rows.rdd.getNumPartitions() == wanted
        assert rows.count() == 50
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
