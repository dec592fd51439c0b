"""TLS of commands, against a broker that serves nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.cli_inside import Inside
from tests.commands import ForkedBroker
from tests.integration.harness.certificates import Files, make_files

VARIABLES = ("LOCKSTEP_TLS", "LOCKSTEP_TLS_CA", "LOCKSTEP_TLS_CERT", "LOCKSTEP_TLS_KEY")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def name_server(files: Files) -> Iterator[str]:
    """Of a broker whose clients must have a certificate."""
    options = ("--topic", "orders:1", "--tls", "enforcing", "--tls-cert", files.server, "--tls-client-ca", files.ca)
    with ForkedBroker(*options) as broker:
        yield broker.name_server


@pytest.fixture
def inside(name_server: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Inside:
    for variable in VARIABLES:
        monkeypatch.setenv(variable, "")  # what a command sets is taken back after the test
    return Inside(name_server, monkeypatch, capfd)


def test_options(inside: Inside, files: Files) -> None:
    """With its files a command is served; another signer, or no TLS, is one line."""
    assert "orders" in inside("--tls-ca", files.ca, "--tls-cert", files.client, "topic", "list").out
    assert "orders" in inside("--tls", "unverified", "--tls-cert", files.client, "topic", "list").out
    for options, says in (
        (("--tls-ca", files.other_ca), "TLS: the certificate is not accepted"),
        (("--tls", "on"), "TLS: the certificate is not accepted"),
        (("--tls", "off"), "the peer closed it (perhaps it wants TLS)"),
    ):
        refused = inside(*options, "topic", "list")
        assert (refused.status, refused.err.count("\n")) == (1, 1)
        assert says in refused.err


def test_the_environment(inside: Inside, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts where no option of TLS is given."""
    monkeypatch.setenv("LOCKSTEP_TLS_CA", files.ca)
    monkeypatch.setenv("LOCKSTEP_TLS_CERT", files.client)
    assert inside("topic", "list").status == 0
    assert inside("--tls", "on", "topic", "list").status == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--tls", "perhaps"), "'perhaps' is not one of 'on', 'unverified', 'off'"),
        (("--tls-ca", "/nowhere/ca.pem"), "tls: /nowhere/ca.pem is no file of certificates: No such file"),
        (("--tls-cert", __file__), "does not have a certificate and its key: a part is missing or is not PEM"),
        (("--tls-key", "/nowhere/key.pem"), "tls: the key /nowhere/key.pem has no certificate"),
    ],
)
def test_options_that_cannot_be(inside: Inside, options: tuple[str, ...], says: str) -> None:
    """A wrong call, in one line."""
    refused = inside(*options, "topic", "list")
    assert (refused.status, refused.err.count("\n")) == (2, 1)
    assert says in refused.err


def test_the_console(inside: Inside, name_server: str, files: Files, tmp_path: Path) -> None:
    """It asks over TLS, as each command does. A snapshot is written where a link leads, as other files are."""
    page, link = tmp_path / "order.html", tmp_path / "link.html"
    link.symlink_to(page)
    for ca, status in ((files.other_ca, 1), (files.ca, 0)):
        asked = inside("--tls-ca", ca, "--tls-cert", files.client, "console", "--snapshot", str(link))
        assert asked.status == status
        assert ("the certificate is not accepted" in asked.err) is bool(status)
    assert name_server in page.read_text(encoding="utf-8")
    assert link.is_symlink()
