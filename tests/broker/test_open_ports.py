"""What a broker says at its start when others than this machine reach it."""

import pytest

import lockstep.broker.__main__ as program
import lockstep.cli.console as console_command
from lockstep.broker.options import parse_options
from lockstep.remoting.settings import is_loopback
from tests.broker.helpers import RecordingLog
from tests.rows import by_row


@by_row(
    "host, alone",
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("a.example", False),
    ],
)
def test_what_only_this_machine_reaches(host: str, alone: bool) -> None:
    """Addresses of loopback and its name; of another name nothing is known."""
    assert is_loopback(host) is alone


@by_row(
    "given, warnings",
    [
        ([], 0),
        (["--metrics-port", "0"], 0),
        (["--host", "10.0.0.1"], 1),
        (["--host", "10.0.0.1", "--brokers", "2"], 1),
        (["--host", "10.0.0.1", "--metrics-port", "0"], 2),
        (["--host", "10.0.0.1", "--acl", "plain_acl.yml"], 0),
        (["--host", "10.0.0.1", "--acl", "plain_acl.yml", "--metrics-port", "0"], 1),
    ],
)
def test_ports_without_accounts_are_named(given: list[str], warnings: int) -> None:
    """The broker's own without ACL, and the one of metrics, which never has accounts."""
    log = RecordingLog()
    program._warn_if_open(parse_options(given), log)  # type: ignore[arg-type]  # it has what a StartLog has
    assert log.names("warning") == ["open_without_accounts"] * warnings


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_the_console_says_that_it_asks_for_no_password(
    host: str, warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beyond loopback everybody may change what it can change."""
    console_command._ready(host, f"http://{host}:8088/")
    said = capsys.readouterr().err
    assert "the console is at" in said
    assert ("no password" in said) is warned
