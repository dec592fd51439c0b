"""The report as one HTML file: verdict, findings, and plots over one time axis. It needs no network and no package."""

from lockstep.order.page.document import page, write_page
from lockstep.order.page.run import Found, JudgedRun, Latency, OwnerBar, Rates
from lockstep.order.page.sections import Spoilt

__all__ = ["Found", "JudgedRun", "Latency", "OwnerBar", "Rates", "Spoilt", "page", "write_page"]
