"""Codes 50 to 54: administrators change and read the rules."""

import json
from collections.abc import Awaitable, Callable

from lockstep.protocol.codes import RequestCode as R
from lockstep.protocol.codes import SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.acl import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from lockstep.protocol.signature import Credentials
from lockstep.simulation import SimRuntime, World, simulate
from tests.broker.acl.accounts import ADMIN
from tests.broker.acl.test_gate import FILE, calls, on_a_broker, put_rules
from tests.broker.cluster import Served, serve

Access = CreateAccessConfigRequestHeader
Ask = Callable[..., Awaitable[RemotingCommand]]
NEW = Credentials("account9", "secret-9999")
PUT, DELETE, WHITE = R.UPDATE_AND_CREATE_ACL_CONFIG, R.DELETE_ACL_CONFIG, R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG


def admin(world: World) -> Ask:
    return calls(world.host("admin"), ADMIN, SerializeType.JSON)


def test_account_lives_and_ends() -> None:
    """A new account may do what it was given at once, a change keeps the other fields, and a deleted one is unknown."""

    async def story(world: World, served: Served, host: SimRuntime) -> None:
        ask, new = admin(world), calls(world.host("c9"), NEW)
        assert "No acl config for account9" in str((await new(served.address, R.GET_BROKER_CONFIG)).remark)
        reply = await ask(served.address, PUT, Access("account9", "secret-9999", topic_perms="T=PUB,U=SUB"))
        assert reply.code == 0, reply.remark
        assert (await new(served.address, R.GET_BROKER_CONFIG)).code == 0
        await ask(served.address, PUT, Access("account9", "secret-9999", default_group_perm="SUB"))
        rules = json.loads((await ask(served.address, R.GET_BROKER_CLUSTER_ACL_CONFIG)).body)
        assert rules["plainAccessConfigs"][-1] == {
            "accessKey": "account9",
            "admin": False,
            "defaultGroupPerm": "SUB",
            "secretKey": "secret-9999",
            "topicPerms": ["T=PUB", "U=SUB"],
        }
        assert rules["globalWhiteAddrs"] == ["10.9.9.*"]
        assert (await ask(served.address, DELETE, DeleteAccessConfigRequestHeader("account9"))).code == 0
        assert "No acl config for account9" in str((await new(served.address, R.GET_BROKER_CONFIG)).remark)
        again = await ask(served.address, DELETE, DeleteAccessConfigRequestHeader("account9"))
        assert again.code == 210
        assert again.remark == "The accesskey[account9] corresponding to accessConfig has been deleted failed."
        events = [event for _, event, _ in served.log.events if event.startswith("acl_account")]
        assert events == ["acl_account_changed", "acl_account_changed", "acl_account_deleted"]
        assert "secret" not in str(served.log.events)

    on_a_broker(story)


def test_version_grows() -> None:
    """Each change of a file is one more; the answer names the broker and each file."""

    async def story(world: World, served: Served, host: SimRuntime) -> None:
        ask = admin(world)
        for counter in (0, 1):
            reply = await ask(served.address, R.GET_BROKER_CLUSTER_ACL_INFO)
            header = reply.decode_header(GetBrokerAclConfigResponseHeader)
            assert json.loads(header.version)["counter"] == counter
            assert json.loads(header.all_acl_file_version)[FILE]["counter"] == counter
            assert (header.broker_name, header.broker_addr) == ("broker-a", served.address)
            await ask(served.address, PUT, Access("account9", "secret-9999"))

    on_a_broker(story)


def test_white_addresses() -> None:
    """A global white address opens the broker for its peers; a bad one, or an unknown file, changes nothing."""

    async def story(world: World, served: Served, host: SimRuntime) -> None:
        ask, peer = admin(world), calls(world.host("peer"), None)
        header = UpdateGlobalWhiteAddrsConfigRequestHeader
        assert (await peer(served.address, R.GET_BROKER_CONFIG)).code == 1
        bad = await ask(served.address, WHITE, header("nonsense"))
        assert (bad.code, "nonsense" in str(bad.remark)) == (211, True)
        unknown = await ask(served.address, WHITE, header("10.0.0.1", "/etc/passwd"))
        assert (unknown.code, unknown.remark) == (211, "The globalWhiteAddresses[10.0.0.1] has been updated failed.")
        assert (await ask(served.address, WHITE, header("10.7.7.7,10.0.*.*"))).code == 0
        assert (await peer(served.address, R.GET_BROKER_CONFIG)).code == 0

    on_a_broker(story)


def test_refused_changes() -> None:
    """A wrong field is refused with RocketMQ's text, but without the secret key, and changes nothing."""

    async def story(world: World, served: Served, host: SimRuntime) -> None:
        ask = admin(world)
        before = host.storage.read_file(FILE)
        for header, says in (
            (Access("short", "secret-9999"), "The accessKey=short and secretKey=*** cannot be null and length should"),
            (Access(), "The accessKey=null and secretKey=null cannot be null"),
            (Access("account9", "secret-9999", topic_perms="t=WHAT"), "Parse resource permission error for t=WHAT.\n"),
            (Access("account9", "secret-9999", group_perms="g"), "Parse Resource format error for g.\n"),
            (Access("account9", "secret-9999", "1.2"), "Netaddress examine Exception netaddress is 1.2"),
        ):
            reply = await ask(served.address, PUT, header)
            assert reply.code == 209
            assert str(reply.remark).startswith(says)
            assert "secret-9999" not in str(reply.remark)
        assert host.storage.read_file(FILE) == before

    on_a_broker(story)


def test_without_acl() -> None:
    """A broker without ACL says so, with RocketMQ's codes."""

    async def scenario(world: World) -> None:
        host = world.host("broker")
        put_rules(host, "")
        served = await serve(host)
        ask = calls(world.host("c1"), None)
        codes = [PUT, DELETE, WHITE, R.GET_BROKER_CLUSTER_ACL_INFO, R.GET_BROKER_CLUSTER_ACL_CONFIG]
        replies = [await ask(served.address, code) for code in codes]
        assert [reply.code for reply in replies] == [209, 210, 211, 1, 1]
        assert {reply.remark for reply in replies} == {"this broker has no ACL: aclEnable is false"}
        await served.server.shutdown()

    simulate(scenario, seed=5)
