"""RocketMQ 5's own clients of gRPC on our broker: the stories, for each of them. Each test has a broker of its own."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.integration.harness.certificates import make_files
from tests.interop.grpc import stories
from tests.interop.grpc.stories import SDKS, GrpcStory, Sdk
from tests.interop.harness.drivers import Drivers
from tests.interop.harness.servers import lockstep_server
from tests.interop.harness.table import RowMaker

pytestmark = pytest.mark.timeout(300)
Serve = Callable[..., GrpcStory]
ACCOUNT: Final = {"access_key": "account1", "secret_key": "secret-1234"}
RULES: Final = """\
accounts:
- accessKey: account1
  secretKey: secret-1234
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [orders=PUB|SUB]
  groupPerms: [workers=SUB]
"""
# A push consumer's heartbeat is too old after 120 s; what it held comes to others a second later.
FORGOTTEN_S: Final = 125
DECIDED_S: Final = 600  # longer than a test
ROUND_S: Final = 3600


@pytest.fixture(params=SDKS)
def sdk(request: pytest.FixtureRequest) -> Sdk:
    return SDKS[request.param]


@pytest.fixture
async def serve(sdk: Sdk, drivers: Drivers, interop_row: RowMaker, tmp_path: Path) -> AsyncIterator[Serve]:
    """Starts our broker with more options: serve("--lock-mode", "fenced"). Its clients end before it."""
    with ExitStack() as stack:
        begun: list[GrpcStory] = []

        def serve(*options: str) -> GrpcStory:
            ports = ("--grpc-port", "0", "--control-port", "0")
            server = stack.enter_context(lockstep_server(tmp_path, *ports, *options))
            begun.append(GrpcStory(sdk, server, server.grpc, drivers, interop_row, f"{sdk.language} -> {server.name}"))
            return begun[-1]

        yield serve
        for story in begun:
            await story.leave()


def parts_of(sdk: Sdk) -> list[str]:
    return [part for part in ("simple", "push") if part not in sdk.lacks]


def needs(sdk: Sdk, *what: str) -> None:
    """End a test of what the client does not have."""
    for one in what:
        if one in sdk.lacks:
            pytest.skip(f"{sdk.language} has no {one}")


async def test_keys_stay_in_order(serve: Serve, sdk: Sdk) -> None:
    await stories.keeps_order(serve(), *parts_of(sdk))


@pytest.mark.parametrize("part", ["simple", "push"])
async def test_order_outlives_a_killed_consumer(serve: Serve, sdk: Sdk, part: str) -> None:
    """With RocketMQ's times, which the broker's clock skips."""
    needs(sdk, part)
    story = serve()
    seconds = FORGOTTEN_S if part == "push" else stories.INVISIBLE_S + 1
    await stories.outlives_a_kill(story, part, f", {seconds} s skipped", lambda: story.server.advance(seconds))


async def test_a_broken_stream_releases_what_a_push_consumer_held(serve: Serve, sdk: Sdk) -> None:
    """Fenced, nobody waits for minutes."""
    needs(sdk, "push")
    await stories.outlives_a_kill(serve("--lock-mode", "fenced"), "push", ", fenced", lambda: None)


async def test_a_message_that_fails_goes_to_the_dead_letters(serve: Serve, sdk: Sdk) -> None:
    needs(sdk, "push")
    await stories.fails_for_good(serve())


async def test_a_group_without_order_gets_all(serve: Serve, sdk: Sdk) -> None:
    needs(sdk, "push")
    story = serve()
    await stories.shares_without_order(story, lambda: story.server.advance(6))  # the second wait is of 5 s


async def test_delayed_messages_come_in_time(serve: Serve) -> None:
    await stories.comes_in_time(serve())


async def test_transactions(serve: Serve, sdk: Sdk) -> None:
    needs(sdk, "transactions")
    # A client that decides late, as on a busy machine, is asked too, and would commit: so nobody is before the move.
    story = serve("-D", f"transactionTimeOut={DECIDED_S * 1000}", "-D", f"transactionCheckInterval={ROUND_S * 1000}")
    began_s = time.monotonic()

    def wait() -> None:
        """To the only round, and hardly further: an answer is known for 30 s of the broker's clock."""
        story.server.advance(ROUND_S - (time.monotonic() - began_s))

    await stories.decides_transactions(story, wait)


async def test_an_account_over_tls(serve: Serve, sdk: Sdk, tmp_path: Path) -> None:
    """The broker takes TLS alone, but from a client that has none. Java and Go believe any server."""
    rules, files = tmp_path / "plain_acl.yml", make_files(tmp_path)
    rules.write_text(RULES)
    mode = "permissive" if "TLS" in sdk.lacks else "enforcing"
    tls = ("--tls", mode, "--tls-cert", files.server)
    await stories.works_with_an_account(serve(*tls, "--acl", str(rules), "--topic", "orders:4"), ACCOUNT, files.ca)
