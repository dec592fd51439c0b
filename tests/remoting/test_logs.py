"""The client library's log: silent until the application wants to hear it."""

import logging

import pytest

from lockstep.remoting.logs import StdlibLog


def test_events_reach_the_standard_logger(caplog: pytest.LogCaptureFixture) -> None:
    """The event's words first, then its facts, at the level of the call."""
    log = StdlibLog("lockstep.test")
    with caplog.at_level(logging.DEBUG, "lockstep.test"):
        log.debug("d")
        log.info("queue acquired", queue="T@b:0", period=3)
        log.warning("w", error="bad")
        log.error("e")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("DEBUG", "d "),
        ("INFO", "queue acquired queue=T@b:0 period=3"),
        ("WARNING", "w error=bad"),
        ("ERROR", "e "),
    ]


def test_an_application_that_configured_nothing_hears_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """Not even the warnings that Python prints for loggers without a handler."""
    logging.getLogger("lockstep.silent").propagate = False
    StdlibLog("lockstep.silent").error("nobody listens", fact=1)
    assert capfd.readouterr() == ("", "")
