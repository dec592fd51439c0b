"""Judges order from traces: each key in order, one owner of a queue at a time, no message lost."""

from lockstep.order.kinds import RULES, Cause, Confidence, Kind
from lockstep.order.merge import TimedRecord, merge_traces
from lockstep.order.reader import BrokenLine, Record, TraceFile
from lockstep.order.report import Handover, OrderReport, Verdict, Violation
from lockstep.order.rules import OrderChecker, check_files, check_traces

__all__ = [
    "RULES",
    "BrokenLine",
    "Cause",
    "Confidence",
    "Handover",
    "Kind",
    "OrderChecker",
    "OrderReport",
    "Record",
    "TimedRecord",
    "TraceFile",
    "Verdict",
    "Violation",
    "check_files",
    "check_traces",
    "merge_traces",
]
