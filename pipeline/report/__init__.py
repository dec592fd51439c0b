"""The report of an audit: its tables as Parquet, and as the runs that a report page shows."""

from lockstep.pipeline.report.findings import AuditFindings, collect
from lockstep.pipeline.report.runs import judged_run
from lockstep.pipeline.report.tables import read_tables, write_tables

__all__ = ["AuditFindings", "collect", "judged_run", "read_tables", "write_tables"]
