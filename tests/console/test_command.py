"""`lockstep console` as a command: without its packages, without a cluster, with a port in use."""

import asyncio
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.cli.console import console
from lockstep.cli.output import CliError
from lockstep.client.errors import NoRouteError
from tests.console.pages_inside import NOWHERE


@pytest.fixture
def nothing_imported() -> Iterator[None]:
    """The console and its packages, as if they had not been imported; afterwards as they were."""

    def ours() -> list[str]:
        return [name for name in sys.modules if name.startswith(("lockstep.console", "starlette"))]

    before = {name: sys.modules.pop(name) for name in ours()}
    yield
    for name in ours():
        del sys.modules[name]
    sys.modules.update(before)


@pytest.mark.usefixtures("nothing_imported")
async def test_without_its_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, with the name of the extra."""
    monkeypatch.setitem(sys.modules, "starlette", None)
    with pytest.raises(CliError, match=r"pip install 'lockstep-mq\[console\]'"):
        await console(NOWHERE, "127.0.0.1", 0, None)


async def test_a_port_in_use_is_said() -> None:
    """With the option that chooses another."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(CliError, match="--port chooses another"):
        await console(NOWHERE, "127.0.0.1", taken.getsockname()[1], None)


async def test_an_ipv6_address_is_shown_in_brackets() -> None:
    """Without them its last colon is not the one before the port."""
    with pytest.raises(CliError, match=r"cannot listen on \[2001:db8::1\]:8088: "):
        await console(NOWHERE, "2001:db8::1", 8088, None, no_login=True)  # an address of no machine


async def test_a_file_of_a_cluster_that_does_not_answer_is_not_written(tmp_path: Path) -> None:
    """An empty page would look like a healthy cluster without locks."""
    with pytest.raises(NoRouteError):
        await console(NOWHERE, "127.0.0.1", 0, tmp_path / "page.html")
    assert not await asyncio.to_thread((tmp_path / "page.html").exists)
