"""Apache's name server with a master and its slave; the master may be ended before the rest."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from lockstep.client import AdminClient, ClientError, MessageQueue
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.headers.messaging import OffsetResponseHeader, QueueRequestHeader
from lockstep.remoting.errors import RemotingError
from lockstep.testing.process import ChildProcess
from tests.integration.harness.ports import free_port
from tests.interop.harness.installed import jars, version_of
from tests.interop.harness.servers import (
    BROKER_CONF,
    JVM,
    LOCK_LIFE_MS,
    LOGBACK,
    POLL_S,
    START_TIMEOUT_S,
    Server,
    accepts,
    broker_ports,
    in_a_loop,
    is_ready,
    jvm_process,
)

__all__ = ["Replicated", "replicated_apache"]

SLAVE_ID = 1
COMMON = "brokerIP2=127.0.0.1\nslaveReadEnable=true\n"
# The master takes nothing for being in its memory, and sends whoever is behind to its slave, which sends them back.
MASTER = COMMON + "brokerRole=ASYNC_MASTER\naccessMessageInMemoryMaxRatio=0\n"
SLAVE = COMMON + f"brokerId={SLAVE_ID}\nbrokerRole=SLAVE\n"


class Replicated(NamedTuple):
    """`server` is as everybody sees it, and its broker the master; `slave` is host:port."""

    server: Server
    slave: str
    end_master: Callable[[], object]

    async def has_followed(self, topic: str) -> None:
        """Wait until the slave has the topic and all its messages."""
        deadline = asyncio.get_running_loop().time() + START_TIMEOUT_S
        async with self.server.admin() as admin:
            queues = (await admin.route(topic)).readable_queues(topic)
            while not await self._follows(admin, queues):
                assert asyncio.get_running_loop().time() < deadline, f"the slave lacks some of {topic}"
                await asyncio.sleep(POLL_S)

    async def _follows(self, admin: AdminClient, queues: list[MessageQueue]) -> bool:
        instance = admin._started()
        topics = await instance.call_address(self.slave, RequestCode.GET_ALL_TOPIC_CONFIG)
        if topics.code != ResponseCode.SUCCESS or queues[0].topic.encode() not in topics.body:
            return False  # a slave copies these each 10 s
        for queue in queues:
            header = QueueRequestHeader(queue.topic, queue.queue_id)
            reply = await instance.call_address(self.slave, RequestCode.GET_MAX_OFFSET, header)
            if reply.decode_header(OffsetResponseHeader).offset != await admin.max_offset(queue):
                return False
        return True


@contextmanager
def replicated_apache(folder: Path) -> Iterator[Replicated]:
    """On free ports, with everything they write in `folder`; all three answer, and the routes name both brokers."""
    name_server_port = free_port()
    name_server = f"127.0.0.1:{name_server_port}"
    life = f"-Drocketmq.broker.rebalance.lockMaxLiveTime={LOCK_LIFE_MS}"
    started: list[ChildProcess] = []
    with ExitStack() as stack:

        def start(name: str, main_class: str, settings: str, *options: str) -> ChildProcess:
            daemon = _start(folder / name, main_class, settings, options)
            stack.callback(daemon.end)
            started.append(daemon)
            return daemon

        def start_broker(name: str, settings: str) -> tuple[ChildProcess, str]:
            port, ha_port = broker_ports()
            names = {"port": port, "ha_port": ha_port, "name_server": name_server, "home": folder / name}
            text = BROKER_CONF.format(**names) + settings
            return start(name, "broker.BrokerStartup", text, "-Xms128m", "-Xmx512m", life), f"127.0.0.1:{port}"

        names = start("namesrv", "namesrv.NamesrvStartup", f"listenPort={name_server_port}\n", "-Xms64m", "-Xmx256m")
        names.wait_until(lambda: accepts(name_server_port), "the name server", START_TIMEOUT_S)
        master, master_address = start_broker("master", MASTER)
        master.wait_until(lambda: is_ready(name_server), "the master's registration", START_TIMEOUT_S)
        slave, slave_address = start_broker("slave", SLAVE)
        slave.wait_until(lambda: in_a_loop(_knows_slave(name_server)), "the slave's registration", START_TIMEOUT_S)
        server = Server(
            "Apache RocketMQ",
            version_of("apache", "rocketmq-broker"),
            name_server,
            master_address,
            lambda: "\n".join(daemon.tail() for daemon in started),
        )
        yield Replicated(server, slave_address, master.end)


def _start(home: Path, main_class: str, settings: str, options: tuple[str, ...]) -> ChildProcess:
    (home / "conf").mkdir(parents=True)
    for program in ("namesrv", "broker", "tools"):
        (home / "conf" / f"logback_{program}.xml").write_text(LOGBACK, encoding="utf-8")
    (home / "server.conf").write_text(settings, encoding="utf-8")
    jvm = ["java", *JVM, *options, f"-Duser.home={home}", f"-Drocketmq.home.dir={home}"]
    command = [*jvm, "-cp", f"{jars('apache')}/*", f"org.apache.rocketmq.{main_class}", "-c", str(home / "server.conf")]
    return jvm_process(f"apache-{home.name}", command, home)


async def _knows_slave(name_server: str) -> bool:
    try:
        async with AdminClient(name_server=name_server) as admin:
            return any(SLAVE_ID in broker.broker_addrs for broker in await admin.brokers())
    except (ClientError, RemotingError):
        return False
