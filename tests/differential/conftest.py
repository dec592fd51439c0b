"""Both brokers, fresh, and the outcomes of all cases: run once, however few tests are chosen."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.differential.cases.all import ALL_CASES
from tests.differential.cases.resets import CLIENT_ANSWERS
from tests.differential.comparing import Outcome
from tests.differential.connection_cases import ConnectionOutcome, run_connection_cases
from tests.differential.fidelity import Fidelity, measure
from tests.differential.run import first_explained, run_cases
from tests.differential.served import served_codes
from tests.differential.side import Side, address
from tests.interop.harness.servers import Server, apache_server, lockstep_server

# Hours, so that no delayed message is due before all is asked, and no transaction is asked about: each broker does so
# by a clock of its own.
SETTINGS = {
    "messageDelayLevel": " ".join(f"{hours}h" for hours in range(1, 19)),
    "transactionCheckInterval": "3600000",
}
# As Apache's has them here.
OURS = {"enablePropertyFilter": "true", "transactionTimeOut": "1000"}


@contextmanager
def side_of(server: Server) -> Iterator[Side]:
    side = Side(address(server.broker), address(server.name_server))
    side.client_answers.update(CLIENT_ANSWERS)
    try:
        yield side
    finally:
        side.close()


def start_apache(folders: pytest.TempPathFactory) -> AbstractContextManager[Server]:
    """Apache's servers, used by nobody else: what they list must be what the cases made."""
    return apache_server(folders.mktemp("differential-apache"), SETTINGS)


def start_lockstep(folders: pytest.TempPathFactory) -> AbstractContextManager[Server]:
    """Our servers, likewise."""
    options = [word for name, value in (SETTINGS | OURS).items() for word in ("-D", f"{name}={value}")]
    return lockstep_server(folders.mktemp("differential-lockstep"), *options)


@pytest.fixture(scope="session")
def apache_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_apache(tmp_path_factory) as server:
        yield server


@pytest.fixture(scope="session")
def lockstep_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_lockstep(tmp_path_factory) as server:
        yield server


@pytest.fixture(scope="session")
def sides(apache_pair: Server, lockstep_pair: Server) -> Iterator[tuple[Side, Side]]:
    with ExitStack() as stack:
        yield stack.enter_context(side_of(apache_pair)), stack.enter_context(side_of(lockstep_pair))


@pytest.fixture(scope="session")
def outcomes(sides: tuple[Side, Side], tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Outcome]:
    """By the id of the case."""
    served = served_codes()
    cases = [case for case in ALL_CASES if case.code in served or case.kind == "step"]

    def plays() -> Iterator[list[Outcome]]:
        yield run_cases(cases, *sides)
        while True:
            with ExitStack() as stack:
                servers = [stack.enter_context(start(tmp_path_factory)) for start in (start_apache, start_lockstep)]
                yield run_cases(cases, *(stack.enter_context(side_of(server)) for server in servers))

    return {outcome.case.id: outcome for outcome in first_explained(plays())}


@pytest.fixture(scope="session")
def connection_outcomes(outcomes: Mapping[str, Outcome], sides: tuple[Side, Side]) -> Mapping[str, ConnectionOutcome]:
    """After the cases, which need the world as it was."""
    return {outcome.name: outcome for outcome in run_connection_cases(*sides)}


@pytest.fixture(scope="session")
def fidelity(
    outcomes: Mapping[str, Outcome], connection_outcomes: Mapping[str, ConnectionOutcome], apache_pair: Server
) -> Fidelity:
    return measure(list(outcomes.values()), list(connection_outcomes.values()), apache_pair.version)


@pytest.fixture(scope="session")
def root() -> Path:
    return Path(__file__).parents[2]
