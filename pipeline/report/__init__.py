"""The report of an audit: one HTML file that needs nothing else, from the tables that the audit gives."""

from lockstep.pipeline.report.findings import Findings, collect
from lockstep.pipeline.report.page import Spoilt, page, write_page
from lockstep.pipeline.report.tables import read_tables, write_tables

__all__ = ["Findings", "Spoilt", "collect", "page", "read_tables", "write_page", "write_tables"]
