"""What several tables are made from, made once: large DataFrames as Parquet in a work folder, small ones on executors.

Both cut the plan of what is built on them, which would otherwise hold each of them many times over.
"""

import shutil
import tempfile

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

__all__ = ["Work"]


class Work:
    """A folder of Parquet. Without a name it is a temporary one of this machine, and `remove` removes it."""

    def __init__(self, spark: SparkSession, folder: str = "") -> None:
        self._spark = spark
        self._temporary = "" if folder else tempfile.mkdtemp(prefix="lockstep-audit-")
        self._folder = folder or f"file://{self._temporary}"

    def large(self, name: str, rows: DataFrame) -> DataFrame:
        """Rows that may be as many as messages."""
        path = f"{self._folder}/{name}"
        rows.write.mode("overwrite").parquet(path)
        return self._spark.read.schema(rows.schema).parquet(path)

    def small(self, rows: DataFrame) -> DataFrame:
        """Rows that are few where all is well."""
        return rows.localCheckpoint(eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK)

    def remove(self) -> None:
        """Remove a temporary folder."""
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)
