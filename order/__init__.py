"""Judges order from traces: each key in order, one owner of a queue at a time, no message lost."""

from lockstep.order.judge.rules import OrderChecker, check_files, check_traces
from lockstep.order.kinds import RULES, Cause, Confidence, Kind
from lockstep.order.report import Handover, OrderReport, Verdict, Violation
from lockstep.order.traces.merge import TimedRecord, merge_traces
from lockstep.order.traces.reader import BrokenLine, Record, TraceFile

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
