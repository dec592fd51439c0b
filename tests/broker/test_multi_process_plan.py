"""What each broker of `--brokers N` has of its own."""

import json
from pathlib import Path

import pytest

from lockstep.broker.multi_process.folders import store_folders
from lockstep.broker.multi_process.pipe import Lines, Said, decode_said, encode_said
from lockstep.broker.multi_process.plan import Member, as_member, encode_member, local_host, name_server_config, plan
from lockstep.broker.multi_process.topics import SharedTopics
from lockstep.broker.name_server.name_server import BrokerIdentity, NameServer
from lockstep.broker.options import Options, parse_options
from lockstep.protocol.bodies.broker import DataVersion, TopicConfig, TopicConfigs
from lockstep.remoting.host.os_storage import OsStorage
from lockstep.store.errors import StoreUnusable

STORAGE = OsStorage()


def planned(*arguments: str) -> list[Member]:
    return plan(parse_options(list(arguments)), STORAGE)


def store_at(folder: Path) -> None:
    (folder / "commitlog").mkdir(parents=True)


def test_names_and_ports() -> None:
    """RocketMQ's names, ports in tens, metrics and gRPC in ones; with port 0 each has a free one."""
    members = planned("--brokers", "3", "--metrics-port", "5557")
    assert [(m.name, m.port, m.metrics_port, m.grpc_port) for m in members] == [
        ("broker-a", 10911, 5557, 8081), ("broker-b", 10921, 5558, 8082), ("broker-c", 10931, 5559, 8083),
    ]  # fmt: skip
    free = planned("--brokers", "2", "--port", "0", "--metrics-port", "0", "--broker-name", "shop")
    assert [(m.name, m.port, m.metrics_port) for m in free] == [("shop-a", 0, 0), ("shop-b", 0, 0)]
    assert [m.metrics_port for m in planned("--brokers", "2", "--broker-name", "x-a")] == [None, None]
    assert [m.name for m in planned("--brokers", "2", "--broker-name", "x-a")] == ["x-a", "x-b"]
    assert planned("--brokers", "26")[-1].name == "broker-z"
    assert planned("--brokers", "2", "--broker-name", "x" * 125 + "-a")[-1].name == "x" * 125 + "-b"


def test_a_broker_has_all_options_and_its_own_parts() -> None:
    """Properties, locks, ACL and TLS hold for each broker; the name server has them without the store."""
    given = ["--brokers", "2", "--data-dir", "/nowhere", "--flush", "sync", "--trace", "t/restarts.trace"]
    given += ["--lock-mode", "fenced", "-D", "aclEnable=true", "-D", "maxMessageSize=1000", "--topic", "orders:4"]
    given += ["--tls", "enforcing", "--tls-cert", "server.pem", "--advertise", "mq.example"]
    options = parse_options(given)
    second = plan(options, STORAGE)[1]._replace(name_servers="127.0.0.1:1")
    own = as_member(parse_options([*given, "--member", encode_member(second)]))
    config = own.config
    assert (config.broker_name, config.port, config.data_dir) == ("broker-b", 10921, "/nowhere/broker-b")
    assert (config.serve_name_server, config.name_servers) == (False, "127.0.0.1:1")
    assert (config.trace, config.acl_file) == ("t/restarts-broker-b.trace", "/nowhere/conf/plain_acl.yml")
    assert (config.lock_mode, config.max_message_bytes, config.flush_sync) == ("fenced", 1000, True)
    assert (config.tls_mode, config.tls_to_name_servers) == ("enforcing", True)
    assert own.topics == options.topics
    assert own.brokers == 1
    served = name_server_config(options.config, second.acl_file)
    assert (served.serve_broker, served.serve_name_server, served.data_dir) == (False, True, "")
    assert (served.acl_file, served.tls_mode) == ("/nowhere/conf/plain_acl.yml", "enforcing")
    assert local_host(options.config) == "mq.example"


@pytest.mark.parametrize(
    ("arguments", "host"),
    [
        ((), "127.0.0.1"),
        (("--host", "0.0.0.0", "--advertise", "10.0.0.9"), "127.0.0.1"),
        (("--host", "0", "--advertise", "10.0.0.9"), "127.0.0.1"),
        (("--host", "10.0.0.7"), "10.0.0.7"),
        (("--host", "::", "--advertise", "fd00::9"), "::1"),
        (("--host", "::0", "--advertise", "fd00::9"), "::1"),
        (("--host", "fd00::7"), "fd00::7"),
    ],
)
def test_brokers_reach_the_name_server_here(arguments: tuple[str, ...], host: str) -> None:
    """Not by the address for clients, which may lead over a router."""
    assert local_host(parse_options(["--brokers", "2", *arguments]).config) == host


def test_brokers_of_another_name_server_do_not_wait_for_it() -> None:
    """It may be started later, as for a single broker."""
    assert [m.waits for m in planned("--brokers", "2")] == [True, True]
    joined = planned("--brokers", "2", "--name-server", "h:1;h:2")
    assert [(m.waits, m.name_servers) for m in joined] == [(False, "h:1;h:2")] * 2


# Folders ------------------------------------------------------------------------------------------------------


def test_each_store_has_a_folder_of_its_own(tmp_path: Path) -> None:
    """Before the first start, and after it."""
    root = str(tmp_path / "data")
    wanted = [f"{root}/broker-a", f"{root}/broker-b"]
    assert store_folders(STORAGE, f"{root}/", ["broker-a", "broker-b"]) == wanted
    for folder in wanted:
        store_at(Path(folder))
    assert store_folders(STORAGE, root, ["broker-a", "broker-b"]) == wanted
    assert store_folders(STORAGE, root, ["broker-a", "broker-b", "broker-c"]) == [*wanted, f"{root}/broker-c"]


def test_the_store_of_a_single_broker_stays_where_it_is(tmp_path: Path) -> None:
    """When one broker becomes several, its folder stays the first one's."""
    store_at(tmp_path)
    root = str(tmp_path)
    assert store_folders(STORAGE, root, ["broker-a"]) == [root]
    assert store_folders(STORAGE, root, ["broker-a", "broker-b"]) == [root, f"{root}/broker-b"]
    store_at(tmp_path / "broker-b")
    assert store_folders(STORAGE, root, ["broker-a", "broker-b"]) == [root, f"{root}/broker-b"]


@pytest.mark.parametrize("names", [["broker-a"], ["broker-a", "broker-b"], ["shop-a", "shop-b", "shop-c"]])
def test_no_store_is_left_aside(tmp_path: Path, names: list[str]) -> None:
    """Fewer brokers, or others, than at the last start: the folders are named, and nothing is opened."""
    for name in ("broker-a", "broker-b", "broker-c"):
        store_at(tmp_path / name)
    with pytest.raises(StoreUnusable, match="broker-c too, which this start would leave aside; give --brokers"):
        store_folders(STORAGE, str(tmp_path), names)


def test_a_store_beside_that_of_a_single_broker_is_found(tmp_path: Path) -> None:
    """A start without --brokers after one with it."""
    store_at(tmp_path)
    store_at(tmp_path / "broker-b")
    with pytest.raises(StoreUnusable, match="has the store of broker-b too"):
        store_folders(STORAGE, str(tmp_path), ["broker-a"])
    store_at(tmp_path / "broker-a")
    with pytest.raises(StoreUnusable, match="has the store of broker-a too"):
        store_folders(STORAGE, str(tmp_path), ["broker-a", "broker-b"])


def test_a_topic_with_the_name_of_a_log_is_no_store(tmp_path: Path) -> None:
    """The queues of a topic `commitlog` are in consumequeue/commitlog; other files in the folder do not matter."""
    store_at(tmp_path)
    (tmp_path / "consumequeue" / "commitlog").mkdir(parents=True)
    (tmp_path / "notes.txt").write_text("x")
    assert store_folders(STORAGE, str(tmp_path), ["broker-a"]) == [str(tmp_path)]


# The pipe and the shared topics ----------------------------------------------------------------------------------


def test_what_is_said_over_a_pipe_comes_whole() -> None:
    """Each field, cut at every place."""
    topics = (TopicConfig("orders", 8, 8, 6, 1, order=True), TopicConfig("a"))
    said = [Said(), Said({"broker": "h:1"}), Said(topics=topics), Said(sent_to=topics[0]), Said(spread=True)]
    data = b"".join(map(encode_said, said))
    for at in range(len(data)):
        lines = Lines()
        whole = [*lines.feed(data[:at]), *lines.feed(data[at:])]
        assert [decode_said(line) for line in whole] == said
    assert json.loads(encode_said(Said())) == {}


def registered(name_server: NameServer, name: str, *topics: TopicConfig) -> BrokerIdentity:
    identity = BrokerIdentity("c", name, 0, f"h:{name}")
    name_server.register(identity, TopicConfigs(DataVersion(1, 1), topics), None, 1)
    return identity


def test_the_queues_of_a_spread_topic_appear_at_once() -> None:
    """On all brokers that are registered; one that is away has it when it comes back."""
    name_server = NameServer()
    shared = SharedTopics(name_server)
    config = TopicConfig("orders", 8, 8)
    for name in ("broker-a", "broker-b"):
        registered(name_server, name)
    shared.spread(config, ["broker-a", "broker-b", "broker-c"])
    route = name_server.route("orders")
    assert route is not None
    assert [(data.broker_name, data.write_queue_nums) for data in route.queue_datas] == [
        ("broker-a", 8),
        ("broker-b", 8),
    ]
    assert shared.of("broker-c") == (config,)


def test_a_broker_gets_back_what_others_still_have() -> None:
    """Topics that were deleted meanwhile stay deleted."""
    name_server = NameServer()
    shared = SharedTopics(name_server)
    kept, deleted = TopicConfig("kept"), TopicConfig("deleted")
    registered(name_server, "broker-a", kept)
    shared.put("broker-b", (kept, deleted))
    assert shared.of("broker-b") == (kept,)
    assert shared.of("broker-a") == ()
    assert SharedTopics(None).of("broker-b") == ()


def test_a_broker_does_not_get_back_what_it_deleted() -> None:
    """Also when the name server, which may be another's, still has the topic of other brokers."""
    shared = SharedTopics(None)
    shared.spread(TopicConfig("kept"), ["broker-a", "broker-b"])
    shared.spread(TopicConfig("deleted"), ["broker-a", "broker-b"])
    shared.delete("broker-b", ["deleted", "never seen"])
    shared.delete("broker-c", ["deleted"])
    assert shared.of("broker-b") == (TopicConfig("kept"),)
    assert shared.of("broker-a") == (TopicConfig("kept"), TopicConfig("deleted"))


def test_options_of_one_broker_are_as_before() -> None:
    """Without --brokers there is one, in this process."""
    options: Options = parse_options([])
    assert (options.brokers, options.member) == (1, "")
