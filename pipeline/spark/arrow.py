"""Functions on Arrow batches, on executors. `DataFrame.mapInArrow` does the same, but PySpark then asks for pandas."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.udf import UserDefinedFunction

__all__ = ["map_in_arrow"]

_MAP_ARROW_ITER: Final = 207  # PythonEvalType.SQL_MAP_ARROW_ITER_UDF


def map_in_arrow(
    rows: DataFrame, function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
) -> DataFrame:
    """Pass the batches of each partition through a function. The result has the columns of `schema`, Spark's DDL."""
    made: Any = UserDefinedFunction(function, returnType=schema, evalType=_MAP_ARROW_ITER)
    column = made(*[rows[name] for name in rows.columns])
    plan: Any = rows._jdf  # noqa: SLF001  (no public way leads past pandas)
    return DataFrame(plan.mapInArrow(column._jc, False, None), rows.sparkSession)  # noqa: SLF001
