"""The data source `format("lockstep")`: its schema, readers and writers."""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from lockstep.pipeline.errors import PipelineError, errors_in_one_line
from lockstep.pipeline.options import Use, parse_option, parse_options
from lockstep.pipeline.schema import checked_schema, source_schema

if TYPE_CHECKING:
    from lockstep.pipeline.sink.writer import LockstepStreamWriter, LockstepWriter
    from lockstep.pipeline.source.batch import LockstepReader
    from lockstep.pipeline.source.stream import LockstepStreamReader, RefusedStream

__all__ = ["LockstepSource"]


class LockstepSource(DataSource):
    """Spark finds it through the package pyspark_lockstep; options.py lists the options.

    A wrong option raises OptionError at the first use.
    """

    @classmethod
    def name(cls) -> str:
        return "lockstep"

    @errors_in_one_line()
    def schema(self) -> StructType:
        """The columns of option columns, else all. A user's schema may have any of them.

        With fewer columns a read is faster. Spark 4.3 does not tell a source in Python which columns a query needs.
        """
        names = parse_option("columns", self.options) or ()
        return source_schema(names, include_properties=bool(parse_option("includeProperties", self.options)))

    @errors_in_one_line()
    def reader(self, schema: StructType) -> "LockstepReader":
        options = parse_options(self.options, Use.READ)
        columns = checked_schema(schema, options.columns)
        if options.push_filters:
            from lockstep.pipeline.source.pushdown import FilteringReader

            return FilteringReader(options, columns)
        from lockstep.pipeline.source.batch import LockstepReader

        return LockstepReader(options, columns)

    def streamReader(self, schema: StructType) -> "LockstepStreamReader | RefusedStream":  # noqa: N802
        from lockstep.pipeline.source.stream import LockstepStreamReader, RefusedStream

        try:
            options = parse_options(self.options, Use.READ_STREAM)
            return LockstepStreamReader(options, checked_schema(schema, options.columns))
        except PipelineError as error:
            return RefusedStream(error)

    @errors_in_one_line()
    def writer(self, schema: StructType, overwrite: bool) -> "LockstepWriter":
        from lockstep.pipeline.sink.writer import LockstepWriter, sink_plan

        return LockstepWriter(sink_plan(schema, self.options, Use.WRITE, overwrite=overwrite))

    @errors_in_one_line()
    def streamWriter(self, schema: StructType, overwrite: bool) -> "LockstepStreamWriter":  # noqa: N802
        from lockstep.pipeline.sink.writer import LockstepStreamWriter, sink_plan

        return LockstepStreamWriter(sink_plan(schema, self.options, Use.WRITE_STREAM, overwrite=overwrite))
