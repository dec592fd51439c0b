"""The client library's log: silent until the application wants to hear it."""

import logging

import pytest

from lockstep.remoting.logs import EXCEPTIONS, StdlibLog, log_exception


def test_events_reach_the_standard_logger(caplog: pytest.LogCaptureFixture) -> None:
    """The event's words first, then its facts, at the level of the call."""
    log = StdlibLog("lockstep.test")
    with caplog.at_level(logging.DEBUG, "lockstep.test"):
        log.debug("d")
        log.info("queue_acquired", queue="T@b:0", period=3)
        log.warning("w", error="bad")
        log.error("e")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("DEBUG", "d "),
        ("INFO", "queue_acquired queue=T@b:0 period=3"),
        ("WARNING", "w error=bad"),
        ("ERROR", "e "),
    ]


def test_an_application_that_configured_nothing_hears_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """Not even the warnings that Python prints for loggers without a handler."""
    logging.getLogger("lockstep.silent").propagate = False
    StdlibLog("lockstep.silent").error("nobody listens", fact=1)
    assert capfd.readouterr() == ("", "")


def test_an_exception_is_an_error_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """On a logger that has no handler, so that Python's own prints it where the application configured none."""
    try:
        raise ValueError("no runway")
    except ValueError as error:
        log_exception(StdlibLog("lockstep.test"), "hook_failed", error, hook="mine")
    [record] = caplog.records
    assert (record.name, record.levelname) == (EXCEPTIONS, "ERROR")
    assert record.getMessage() == "hook_failed hook=mine error=ValueError: no runway"
    assert "raise ValueError" in caplog.text
    name = record.name
    while name:
        assert not logging.getLogger(name).handlers
        name = name.rpartition(".")[0]


def test_tracebacks_of_one_place_are_paced(caplog: pytest.LogCaptureFixture) -> None:
    """Each exception is logged; a place that raises thousands of times a second shows its traceback twice in it."""
    [pace] = logging.getLogger(EXCEPTIONS).filters
    assert isinstance(pace, logging.Filter)

    def shown(at_s: float, line: int) -> bool:
        try:
            if line == 1:
                raise ValueError("one")
            raise ValueError("other")
        except ValueError as error:
            record = logging.LogRecord(EXCEPTIONS, logging.ERROR, "f", 1, "m", (), (type(error), error, None))
        record.created = at_s
        assert pace.filter(record)
        return record.exc_info is not None

    assert [shown(1000 + at_ms / 1000, 1) for at_ms in (0, 1, 499, 501, 900, 1002)] == [
        True,
        False,
        False,
        True,
        False,
        True,
    ]
    assert [shown(1001.1, line) for line in (1, 2)] == [False, True]
    assert shown(900, 1), "a wall clock that was set back hides nothing"


def test_names_of_peers_do_not_steer_a_terminal(caplog: pytest.LogCaptureFixture) -> None:
    """Control characters of a fact are written as text: an application's handler may print them as they come."""
    with caplog.at_level(logging.DEBUG, "lockstep.test"):
        StdlibLog("lockstep.test").info("queue_acquired", queue="\x1b[2JT\nforged", group="訂單")
    assert caplog.records[0].getMessage() == "queue_acquired queue=\\x1b[2JT\\nforged group=訂單"
