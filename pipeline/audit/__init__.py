"""The auditor of order: traces of any number of consumers, and the topic's content, to violations with evidence."""

from lockstep.pipeline.audit.schema import RECORD_COLUMNS, TABLES, TRACE_COLUMNS
from lockstep.pipeline.audit.tables import DEFAULT_CLOCK_TOLERANCE_MS, Audit, transform
from lockstep.pipeline.audit.traces import read_traces

__all__ = [
    "DEFAULT_CLOCK_TOLERANCE_MS",
    "RECORD_COLUMNS",
    "TABLES",
    "TRACE_COLUMNS",
    "Audit",
    "read_traces",
    "transform",
]
