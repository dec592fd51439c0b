"""The two ends a client may be pointed at: our broker, and Apache's name server and broker, as processes.

Apache's are of 4.9 (`apache`) or of 5.5 (`apache5`). All live for the whole session, so tests take topics and
groups of their own. All let a lock live LOCK_LIFE_MS; clients of a test have intervals to match (drivers.FAST).
"""

import asyncio
import json
import os
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from lockstep.client import AdminClient, ClientConfig, ClientError
from lockstep.remoting.errors import RemotingError
from lockstep.testing.control import ControlConnection
from lockstep.testing.process import BrokerProcess, ChildProcess
from tests.integration.harness.ports import free_port, free_ports_at
from tests.integration.harness.processes import ANSWER_MS, until
from tests.interop.harness.installed import jars, version_of

__all__ = [
    "DECIDED_MS",
    "LOCK_LIFE_MS",
    "Ports",
    "Server",
    "apache_proxy",
    "apache_server",
    "free_ports",
    "lockstep_server",
]

LOCK_LIFE_MS = 10_000  # as in the demo
DECIDED_MS = 5_000  # transactionTimeOut where what is decided at once is not to be asked after, on a busy machine too
START_TIMEOUT_S = 180.0  # of a busy machine
END_TIMEOUT_S = 120.0  # the same: what was killed in its last writes is another folder than one that was closed
POLL_S = 0.1
_QUICK = ("--dead-letter-at-once",)  # nobody waits for the minutes that RocketMQ's take
OPENED = ("java.nio", "sun.nio.ch", "jdk.internal.ref", "java.lang", "java.util")
MODULES = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED]
SERIAL_GC = "-XX:+UseSerialGC"
OPENINGS = [*MODULES, "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED"]
JVM = [SERIAL_GC, *OPENINGS]
SMALL_HEAP = (SERIAL_GC, "-Xms256m", "-Xmx768m")
LOGBACK = """<configuration>
  <appender name="console" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss.SSS} %-5level %logger{0} - %msg%n</pattern></encoder>
  </appender>
  <logger name="ROOT" level="WARN"><appender-ref ref="console"/></logger>
</configuration>
"""
BROKER_CONF = """brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
brokerIP1=127.0.0.1
listenPort={port}
haListenPort={ha_port}
namesrvAddr={name_server}
storePathRootDir={home}/store
storePathCommitLog={home}/store/commitlog
mappedFileSizeCommitLog=67108864
waitTimeMillsInSendQueue=10000
osPageCacheBusyTimeOutMills=10000
mappedFileSizeConsumeQueue=300000
diskMaxUsedSpaceRatio=95
enablePropertyFilter=true
autoCreateTopicEnable=true
autoCreateSubscriptionGroup=true
flushDiskType=ASYNC_FLUSH
transactionTimeOut=1000
transactionCheckInterval=2000
"""


class Ports(NamedTuple):
    name_server: int
    broker: int
    replication: int


@dataclass(frozen=True)
class Server:
    """A broker with its name server; addresses are host:port."""

    name: str  # "Lockstep" or "Apache RocketMQ"
    version: str
    name_server: str
    broker: str
    log_tail: Callable[[], str]
    log: Callable[[], str] = str  # all of it; of Lockstep's broker alone
    pids: tuple[int, ...] = ()  # of the broker, then of its name server if that is a process of its own
    queue_counts: dict[str, int] = field(default_factory=dict)  # of the topics that `create_topic` made
    grpc: str = ""  # where clients of RocketMQ 5 connect
    control: BrokerProcess | None = None  # of Lockstep's broker with --control-port

    @property
    def is_apache(self) -> bool:
        return self.name != "Lockstep"

    def admin(self) -> AdminClient:
        config = ClientConfig(connect_timeout_ms=ANSWER_MS, request_timeout_ms=ANSWER_MS)
        return AdminClient(name_server=self.name_server, config=config)

    def advance(self, seconds: float) -> None:
        """Move the clock of a broker with --control-port; connected clients count as heard in that time."""
        assert self.control is not None
        with closing(ControlConnection(self.control)) as control:
            for _ in range(4):  # turns of its loop, in which it sees who has gone by now: that one is not heard
                control.call("status")
            control.call("advance", seconds=seconds, heartbeats=True)

    async def settle(self) -> None:
        """Wait until all that is stored can be read.

        On Apache's broker queues follow the log a little later than the answer to a send.
        """

        async def is_settled() -> bool:
            return (await admin.broker_runtime(self.broker))["dispatchBehindBytes"] == "0"

        async with self.admin() as admin:
            await until(is_settled, "the queues come up with the log")

    async def create_topic(self, topic: str, queues: int = 4, *, message_type: str | None = None) -> str:
        """Make a topic; returns once the name server gives its route."""
        async with self.admin() as admin:
            await admin.create_topic(topic, queues, message_type=message_type)
            self.queue_counts[topic] = queues
            deadline = asyncio.get_running_loop().time() + START_TIMEOUT_S
            while topic not in await admin.topics():
                assert asyncio.get_running_loop().time() < deadline, f"no route for {topic}"
                await asyncio.sleep(POLL_S)
        return topic


@contextmanager
def lockstep_server(folder: Path, *options: str) -> Iterator[Server]:
    """Our broker on free ports. Raises BrokerFailed with the end of its log when it does not start."""
    life = ("-D", f"rocketmq.broker.rebalance.lockMaxLiveTime={LOCK_LIFE_MS}")
    with BrokerProcess("--log-level", "warning", *life, *_QUICK, *options, folder=folder) as broker:
        server = Server("Lockstep", "0.1.0", broker.name_server, broker.address, broker.tail, broker.stderr)
        yield replace(server, pids=(broker.pid,), grpc=broker.addresses.grpc, control=broker)


@contextmanager
def apache_server(
    folder: Path,
    settings: Mapping[str, object] | None = None,
    *,
    ports: Ports | None = None,
    lock_life_ms: int = LOCK_LIFE_MS,
    jvm: Sequence[str] = SMALL_HEAP,
    part: str = "apache",
    grpc: bool = False,
) -> Iterator[Server]:
    """Apache's name server and broker, with everything they write in `folder`.

    Args:
        folder: Messages are in `store`, on which it may be started again.
        settings: Of the broker; they win.
        ports: Free ones by default.
        jvm: Heap and garbage collector of the broker.
        part: Whose jars: apache for 4.9, apache5 for 5.5, which is killed at the end: it takes its time for more.
        grpc: The broker is inside a proxy, which serves gRPC ("local mode").
    """
    version = version_of(part, "rocketmq-broker")
    (folder / "conf").mkdir(exist_ok=True)
    for name in ("namesrv", "broker", "tools"):
        (folder / "conf" / f"logback_{name}.xml").write_text(LOGBACK, encoding="utf-8")
    name_server_port, port, ha_port = ports or free_ports()
    name_server, address = f"127.0.0.1:{name_server_port}", f"127.0.0.1:{port}"
    names = {"port": port, "ha_port": ha_port, "name_server": name_server, "home": folder}
    (folder / "namesrv.conf").write_text(f"listenPort={name_server_port}\n", encoding="utf-8")
    added = "".join(f"{name}={value}\n" for name, value in (settings or {}).items())
    (folder / "broker.conf").write_text(BROKER_CONF.format(**names) + added, encoding="utf-8")
    with ExitStack() as stack:
        started: list[ChildProcess] = []

        def start(name: str, main_class: str, *options: str, args: Sequence[str] = ()) -> ChildProcess:
            java = ["java", *OPENINGS, *options, f"-Duser.home={folder}", f"-Drocketmq.home.dir={folder}"]
            command = [*java, "-cp", f"{jars(part)}/*", f"org.apache.rocketmq.{main_class}"]
            command += args or ["-c", str(folder / f"{name}.conf")]
            daemon = jvm_process(f"apache-{name}", command, folder)
            stack.callback(partial(end_in_order, daemon) if part == "apache" else daemon.kill)
            started.append(daemon)
            return daemon

        start("namesrv", "namesrv.NamesrvStartup", SERIAL_GC, "-Xms64m", "-Xmx256m").wait_until(
            lambda: accepts(name_server_port), "the name server", START_TIMEOUT_S
        )
        life = f"-Drocketmq.broker.rebalance.lockMaxLiveTime={lock_life_ms}"
        grpc_port = free_port()
        if grpc:
            args = ["-n", name_server, "-pm", "local", "-bc", str(folder / "broker.conf")]
            args += ["-pc", proxy_settings(folder, name_server, grpc_port)]
            broker = start("broker", "proxy.ProxyStartup", *jvm, life, args=args)
            broker.wait_until(lambda: accepts(grpc_port), "the proxy", START_TIMEOUT_S)
        else:
            broker = start("broker", "broker.BrokerStartup", *jvm, life)
        broker.wait_until(lambda: is_ready(name_server), "the broker's registration", START_TIMEOUT_S)
        pids = tuple(daemon.pid for daemon in reversed(started))
        tails: Callable[[], str] = lambda: "\n".join(d.tail() for d in started)  # noqa: E731
        grpc_address = f"127.0.0.1:{grpc_port}" if grpc else ""
        yield Server("Apache RocketMQ", version, name_server, address, tails, pids=pids, grpc=grpc_address)


@contextmanager
def apache_proxy(folder: Path, server: Server, settings: Mapping[str, object] | None = None) -> Iterator[str]:
    """Apache's proxy in cluster mode, before any broker; everything it writes is in `folder`.

    Args:
        settings: They win.

    Yields:
        Where it serves gRPC, host:port.
    """
    port = free_port()
    chosen = proxy_settings(folder, server.name_server, port, settings)
    java = ["java", *SMALL_HEAP, f"-Duser.home={folder}"]
    command = [*java, "-cp", f"{jars('apache5')}/*", "org.apache.rocketmq.proxy.ProxyStartup"]
    command += ["-n", server.name_server, "-pm", "cluster", "-pc", chosen]
    proxy = jvm_process("apache-proxy", command, folder)
    try:
        proxy.wait_until(lambda: accepts(port), "the proxy", START_TIMEOUT_S)
        yield f"127.0.0.1:{port}"
    finally:
        proxy.kill()  # it would wait for half a minute for clients to leave


def proxy_settings(folder: Path, name_server: str, grpc_port: int, settings: Mapping[str, object] | None = None) -> str:
    """The path of a file with what a proxy is told. `settings` win."""
    chosen = {
        "rocketMQClusterName": "DefaultCluster",
        "namesrvAddr": name_server,
        "grpcServerPort": grpc_port,
        "remotingListenPort": free_port(),
        "localServeAddr": "127.0.0.1",
    }
    path = folder / "rmq-proxy.json"
    path.write_text(json.dumps(chosen | dict(settings or {})), encoding="utf-8")
    return str(path)


def jvm_process(name: str, command: list[str], home: Path) -> ChildProcess:
    """A server of Apache's with its home, which is its working folder as well."""
    return ChildProcess(name, command, home, cwd=home, env={**os.environ, "ROCKETMQ_HOME": str(home)})


def end_in_order(daemon: ChildProcess) -> None:
    """Ask it to end, and give it time to close its files."""
    daemon.ask_to_end()
    daemon.wait(END_TIMEOUT_S)
    daemon.end()


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def is_ready(name_server: str) -> bool:
    """Whether a broker has registered, and answers."""

    async def ask() -> bool:
        try:
            async with AdminClient(name_server=name_server) as admin:
                route = await admin.route("TBW102")
                return await admin.max_offset(route.readable_queues("TBW102")[0]) == 0
        except (ClientError, RemotingError):
            return False

    return in_a_loop(ask())


def in_a_loop(work: Coroutine[Any, Any, bool]) -> bool:
    """Run on a thread of its own, away from the loop of the tests."""
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(asyncio.run(work)))
    thread.start()
    thread.join()
    return bool(answers and answers[0])


def free_ports() -> Ports:
    listen, replication = broker_ports()
    return Ports(free_port(), listen, replication)


def broker_ports() -> tuple[int, int]:
    """(listen port, port of the replication). The "VIP channel" two below the listen port is free as well."""
    _, listen, replication = free_ports_at(-2, 0, 1)
    return listen, replication
