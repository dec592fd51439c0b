"""The report as one HTML file: verdict, findings, and plots over one time axis. It needs no network and no package."""

from lockstep.order.page.document import page, write_page
from lockstep.order.page.run import Found, JudgedRun, Latency, OwnerBar, Rates
from lockstep.order.page.sections import CorruptedTraces

__all__ = ["CorruptedTraces", "Found", "JudgedRun", "Latency", "OwnerBar", "Rates", "page", "write_page"]
