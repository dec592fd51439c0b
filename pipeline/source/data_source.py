"""The data source `format("lockstep")`: its schema, readers and writers."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from lockstep.pipeline.errors import ColumnError, OptionError
from lockstep.pipeline.options import Use, parse_options
from lockstep.pipeline.schema import checked_schema, source_schema

if TYPE_CHECKING:
    from lockstep.pipeline.sink.writer import LockstepStreamWriter, LockstepWriter
    from lockstep.pipeline.source.batch import LockstepReader
    from lockstep.pipeline.source.stream import LockstepStreamReader

__all__ = ["LockstepSource"]


_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"  # PySpark reads it when a worker reports an error, and ends


@contextmanager
def _told_in_one_line() -> Iterator[None]:
    """Keep our stack out of the error of a wrong call."""
    try:
        yield
    except (OptionError, ColumnError):
        if not os.environ.get("LOCKSTEP_DEBUG"):
            os.environ[_HIDE_TRACEBACK] = "1"
        raise


class LockstepSource(DataSource):
    """Spark finds it through the package pyspark_lockstep; options.py lists the options.

    A wrong option raises OptionError at the first use. Spark shows its text without our stack; with LOCKSTEP_DEBUG=1
    it shows the stack too.
    """

    @classmethod
    def name(cls) -> str:
        return "lockstep"

    def schema(self) -> StructType:
        """All columns. A user's schema may have any of them; with fewer columns a read is faster."""
        headers = any(self.options.get(name, "").lower() == "true" for name in ("includeproperties", "includeheaders"))
        return source_schema(include_properties=headers)

    @_told_in_one_line()
    def reader(self, schema: StructType) -> "LockstepReader":
        options = parse_options(self.options, Use.READ)
        if options.push_filters:
            from lockstep.pipeline.source.pushdown import FilteringReader

            return FilteringReader(options, checked_schema(schema))
        from lockstep.pipeline.source.batch import LockstepReader

        return LockstepReader(options, checked_schema(schema))

    @_told_in_one_line()
    def streamReader(self, schema: StructType) -> "LockstepStreamReader":  # noqa: N802
        from lockstep.pipeline.source.stream import LockstepStreamReader

        return LockstepStreamReader(parse_options(self.options, Use.READ_STREAM), checked_schema(schema))

    @_told_in_one_line()
    def writer(self, schema: StructType, overwrite: bool) -> "LockstepWriter":
        from lockstep.pipeline.sink.writer import LockstepWriter, sink_plan

        return LockstepWriter(sink_plan(schema, self.options, Use.WRITE, overwrite=overwrite))

    @_told_in_one_line()
    def streamWriter(self, schema: StructType, overwrite: bool) -> "LockstepStreamWriter":  # noqa: N802
        from lockstep.pipeline.sink.writer import LockstepStreamWriter, sink_plan

        return LockstepStreamWriter(sink_plan(schema, self.options, Use.WRITE_STREAM, overwrite=overwrite))
