"""The tables of an audit as Parquet, a folder each: what a report is made from, and what other tools read."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from lockstep.pipeline.audit import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read_tables", "write_tables"]


def write_tables(
    tables: "Mapping[str, DataFrame]", folder: str, tell: Callable[[str], None] = lambda _name: None
) -> None:
    """Each into `folder`/NAME, written anew. `tell` hears the name of the one that is made next."""
    for name in TABLES:
        tell(name)
        tables[name].coalesce(1).write.mode("overwrite").parquet(f"{folder}/{name}")


def read_tables(spark: "SparkSession", folder: str) -> "dict[str, DataFrame]":
    """What `write_tables` wrote. Raises AnalysisException for a folder without them."""
    return {name: spark.read.schema(columns).parquet(f"{folder}/{name}") for name, columns in TABLES.items()}
