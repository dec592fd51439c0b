"""A server with ACL on virtual time: what its ports answer, reloads, one-way requests, copies, its log."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lockstep.protocol.codes import RequestCode as R
from lockstep.protocol.codes import ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import RegisterBrokerRequestHeader
from lockstep.protocol.signature import Credentials
from lockstep.remoting.connections.dialer import Dialer, DialerCallbacks, DialerSettings
from lockstep.remoting.host.atomic_write import replace_file
from lockstep.remoting.settings import SettingError
from lockstep.simulation import SimRuntime, World, simulate
from tests.broker.acl.accounts import ACCOUNT, ADMIN, RULES
from tests.broker.cluster import Served, serve
from tests.broker.helpers import ENCODINGS, pull_header, send_header
from tests.remoting.helpers import RecordingLog

FILE = "rules/plain_acl.yml"
EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "
OPEN = RULES.replace("  - both=PUB|SUB", "  - both=PUB|SUB\n  - T=PUB|SUB")
Ask = Callable[..., Awaitable[RemotingCommand]]


def calls(runtime: SimRuntime, account: Credentials | None, encoding: SerializeType = SerializeType.MSGPACK) -> Ask:
    """A function that asks a server for an account, over one connection an address."""
    offer = None if encoding is SerializeType.JSON else encoding
    callbacks = DialerCallbacks(lambda endpoint, command: None)
    dialer = Dialer(runtime, callbacks, RecordingLog(), DialerSettings(offer=offer, credentials=account))

    async def ask(
        address: str, code: int, header: tuple[Any, ...] | None = None, body: bytes = b"", *, one_way: bool = False
    ) -> RemotingCommand:
        async def run() -> RemotingCommand:
            endpoint = await dialer.endpoint(address)
            if one_way:
                endpoint.send_one_way(RemotingCommand(code, header, body))
                return RemotingCommand(0)
            return await endpoint.request(RemotingCommand(code, header, body), 3000)

        return await runtime.run(run())

    return ask


def put_rules(runtime: SimRuntime, text: str) -> None:
    replace_file(runtime.storage, FILE, text.encode())


def on_a_broker(
    story: Callable[[World, Served, SimRuntime], Awaitable[None]], rules: str = OPEN, **settings: object
) -> None:
    async def scenario(world: World) -> None:
        host = world.host("broker")
        put_rules(host, rules)
        served = await serve(host, acl_enable=True, acl_file=FILE, **settings)
        await story(world, served, host)
        await served.server.shutdown()

    scenario.__module__ = story.__module__
    simulate(scenario, seed=5)


@pytest.mark.parametrize("checks", ["rocketmq", "strict"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_signed_and_not(encoding: SerializeType, checks: str) -> None:
    """Under each encoding signed requests are served, others get code 1 and RocketMQ's text."""

    async def story(world: World, served: Served, host: SimRuntime) -> None:
        signed = calls(world.host("c1"), ACCOUNT, encoding)
        for number in range(3):  # the first one is JSON, with the offer of the encoding
            reply = await signed(served.address, R.SEND_MESSAGE_V2, send_header("T"), b"%d" % number)
            assert reply.code == 0, reply.remark
        assert (await signed(served.address, R.PULL_MESSAGE, pull_header(0))).code == 0
        refused = await signed(served.address, R.SEND_MESSAGE_V2, send_header("other"), b"x")
        assert (refused.code, refused.remark) == (1, EXCEPTION + "No default permission for topic:other")
        unsigned = calls(world.host("c2"), None, encoding)
        for _ in range(2):
            refused = await unsigned(served.address, R.SEND_MESSAGE_V2, send_header("T"), b"x")
            assert (refused.code, refused.remark) == (1, EXCEPTION + "No accessKey is configured")
        wrong = calls(world.host("c3"), Credentials("account1", "secret-0000"), encoding)
        refused = await wrong(served.address, R.SEND_MESSAGE_V2, send_header("T"), b"x")
        assert refused.remark == EXCEPTION + "Check signature failed for accessKey=account1"

    on_a_broker(story, acl_checks=checks)


def test_one_way_is_silent() -> None:
    """A one-way request without a signature has no effect and no answer, and its connection stays."""

    async def story(world: World, served: Served, host: SimRuntime) -> None:
        unsigned = calls(world.host("c2"), None)
        await unsigned(served.address, R.SEND_MESSAGE_V2, send_header("T"), b"x", one_way=True)
        assert (await unsigned(served.address, R.HEART_BEAT)).code == ResponseCode.SYSTEM_ERROR
        assert served.server.broker is not None
        assert served.server.broker.catalog.topics.get("T") is None

    on_a_broker(story)


def test_reload() -> None:
    """Within 5 s a changed file is in force; a bad one is logged, and the old rules stay."""

    async def story(world: World, served: Served, host: SimRuntime) -> None:
        signed = calls(world.host("c1"), ACCOUNT)
        assert (await signed(served.address, R.GET_BROKER_RUNTIME_INFO)).code == 0
        put_rules(host, "accounts: [")
        await world.sleep_ms(5100)
        assert (await signed(served.address, R.GET_BROKER_RUNTIME_INFO)).code == 0
        assert [event for _, event, _ in served.log.events if event.startswith("acl")] == ["acl_file_refused"]
        put_rules(host, "accounts: []")
        await world.sleep_ms(5100)
        refused = await signed(served.address, R.GET_BROKER_RUNTIME_INFO)
        assert refused.remark == EXCEPTION + "No acl config for account1"

    on_a_broker(story)


def test_refusals_are_counted() -> None:
    """The refusals of a host are one log event each 10 s, with their number, and without a secret."""

    async def story(world: World, served: Served, host: SimRuntime) -> None:
        unsigned = calls(world.host("c2"), None)
        for _ in range(3):
            await unsigned(served.address, R.GET_BROKER_CONFIG)
        await world.sleep_ms(10_100)
        await unsigned(served.address, R.GET_BROKER_CONFIG)
        found = [fields for _, event, fields in served.log.events if event == "acl_refused"]
        assert [fields["times"] for fields in found] == [1, 3]
        assert found[0]["request"] == "GET_BROKER_CONFIG (26)"
        assert "secret" not in str(served.log.events)

    on_a_broker(story)


@pytest.mark.parametrize(("checks", "code"), [("rocketmq", 0), ("strict", 1)])
def test_name_server(checks: str, code: int) -> None:
    """RocketMQ's name server takes any registration; with strict checks only an administrator's."""

    async def story(world: World, served: Served, host: SimRuntime) -> None:
        header = RegisterBrokerRequestHeader("fake", "10.0.0.1:10911", "DefaultCluster", "", 0)
        body = b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":0,"timestamp":0},"topicConfigTable":{}}}'
        name_server = served.server.name_server_address
        for host_name, account in (("c1", None), ("c2", ACCOUNT)):
            ask = calls(world.host(host_name), account, SerializeType.JSON)
            assert (await ask(name_server, R.REGISTER_BROKER, header, body)).code == code
            assert (await ask(name_server, R.GET_BROKER_CLUSTER_INFO)).code == 0
        admin = calls(world.host("admin"), ADMIN, SerializeType.JSON)
        assert (await admin(name_server, R.REGISTER_BROKER, header, body)).code == 0

    on_a_broker(story, acl_checks=checks)


def test_bad_rules_at_the_start() -> None:
    """A broker does not start with rules that it cannot read."""

    async def story(world: World, served: Served, host: SimRuntime) -> None:
        raise AssertionError("it started")

    with pytest.raises(SettingError, match=r"acl_enable: rules/plain_acl\.yml: this is not YAML in line 1"):
        on_a_broker(story, "accounts: [")


@pytest.mark.parametrize("account", [ADMIN, None], ids=["signs", "does not sign"])
def test_registration(account: Credentials | None) -> None:
    """A broker in another process signs its registration, so that a name server with strict checks takes it."""

    async def scenario(world: World) -> None:
        names = world.host("names")
        put_rules(names, RULES)
        options = {"acl_enable": True, "acl_file": FILE, "acl_checks": "strict"}
        name_server = await serve(names, serve_broker=False, **options)
        address = name_server.server.name_server_address
        broker = await serve(
            world.host("broker"), serve_name_server=False, name_servers=address, credentials=account, broker_name="far"
        )
        await world.sleep_ms(1000)
        assert name_server.server.name_server is not None
        known = {identity.broker_name for identity, _ in name_server.server.name_server.scan(10**15)}
        assert known == ({"far"} if account else set())
        await broker.server.shutdown()
        await name_server.server.shutdown()

    simulate(scenario, seed=5)
