"""RocketMQ 5.5's proxy and our broker, and what both showed of each case: played once, however few tests are chosen."""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.differential.grpc.cases import CASES
from tests.differential.grpc.differences import unexplained
from tests.differential.grpc.live import Address, play_all
from tests.differential.grpc.page import as_markdown, as_rows
from tests.differential.grpc.played import Played
from tests.interop.harness.servers import Server, apache_server, lockstep_server

SETTINGS = {"recallMessageEnable": "true"}
OURS = {"enablePropertyFilter": "true", "transactionTimeOut": "1000", "transactionCheckInterval": "2000"}


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Played]:
    """By the id of the case. The page and what RocketMQ showed are left in build/."""
    options = [word for name, value in OURS.items() for word in ("-D", f"{name}={value}")]
    with ExitStack() as stack:
        apache = stack.enter_context(
            apache_server(tmp_path_factory.mktemp("apache5"), SETTINGS, part="apache5", grpc=True)
        )
        folder = tmp_path_factory.mktemp("lockstep")
        ours = stack.enter_context(lockstep_server(folder, "--grpc-port", "0", *options))
        found = asyncio.run(play_all(CASES, _address(apache), _address(ours), _is_fine))
    folder = Path(__file__).parents[3] / "build"
    folder.mkdir(exist_ok=True)
    (folder / "fidelity-grpc.md").write_text(as_markdown(found, apache.version), encoding="utf-8")
    (folder / f"grpc-{apache.version}.ndjson").write_text(as_rows(found), encoding="utf-8")
    return {one.case.id: one for one in found}


def _address(server: Server) -> Address:
    return Address(server.grpc, server.broker, server.name_server)


def _is_fine(played: Played) -> bool:
    return not unexplained(played) and not played.apart()
