"""The auditor of order: traces of any number of processes, judged on Spark by the code of `lockstep.order`."""

from lockstep.pipeline.audit.schema import TABLES, TRACE_COLUMNS
from lockstep.pipeline.audit.tables import Audit, transform
from lockstep.pipeline.audit.traces import read_traces

__all__ = ["TABLES", "TRACE_COLUMNS", "Audit", "read_traces", "transform"]
