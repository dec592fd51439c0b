"""Pure observers of a history: was every message of a key handled in order, by one owner at a time, and none lost?"""

from lockstep.order.reader import Record, TimedRecord, TraceError, TraceFile, merge_traces
from lockstep.order.report import Cause, Handover, Kind, OrderReport, Violation
from lockstep.order.rules import OrderChecker, check_files, check_traces

__all__ = [
    "Cause",
    "Handover",
    "Kind",
    "OrderChecker",
    "OrderReport",
    "Record",
    "TimedRecord",
    "TraceError",
    "TraceFile",
    "Violation",
    "check_files",
    "check_traces",
    "merge_traces",
]
