"""A streaming query in a process of its own, to be killed: argv is name server, topic, folder, messages in all.

Each micro-batch becomes a folder of Parquet, named by its number and written anew when the batch is repeated, as an
idempotent sink does. It ends by itself when all messages are there.
"""

import os
import sys
from pathlib import Path
from typing import Any

from lockstep.pipeline.spark.session import end_session, spark_session

RETRIES = {"fetchOffset.numRetries": "100", "fetchOffset.retryIntervalMs": "200"}  # a broker that starts again


def main(name_server: str, topic: str, folder: str, total: int) -> None:
    os.setpgrp()  # so that the JVM can be killed with it
    settings = {"spark.local.dir": f"{folder}/scratch", "spark.sql.shuffle.partitions": "1"}
    spark = spark_session("stream", master="local[2]", driver_memory="512m", settings=settings)
    options = {"nameServer": name_server, "subscribe": topic, "startingOffsets": "earliest", **RETRIES}
    source = spark.readStream.format("lockstep").options(**options, maxOffsetsPerTrigger="900")
    frame = source.schema("queueId int, offset bigint, value binary").load()

    def keep(batch: Any, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"{folder}/batches/{number}")
        print(f"batch {number}", flush=True)

    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", f"{folder}/checkpoint").start()
    print("started", flush=True)
    while query.isActive and rows_of(Path(folder, "batches")) < total:
        query.awaitTermination(1)
    error = query.exception()
    query.stop()
    end_session(spark)
    if error is not None:
        raise error


def rows_of(folder: Path) -> int:
    """Rows of all batches that are written to their ends."""
    import pyarrow.parquet as pq

    whole = [part.parent for part in folder.glob("*/_SUCCESS")]
    return sum(pq.read_metadata(file).num_rows for part in whole for file in part.glob("*.parquet"))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
