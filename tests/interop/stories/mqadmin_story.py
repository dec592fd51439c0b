"""The same small state on our broker and on Apache's, and mqadmin, which is asked the same of both.

Topics `orders` and `history` have 50 messages each. Group `settled` handled the first 40 of `orders` and left. Group
`online` handled all of `orders`, group `moved` all of `history`; both are there, and a producer of group `producing`.
Everything was made by Java clients and by mqadmin itself.
"""

import asyncio
import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lockstep.client import Credentials
from tests.integration.harness.processes import until
from tests.interop.harness.drivers import Driver, Drivers, Event
from tests.interop.harness.servers import LOGBACK, Server, apache_server, lockstep_server
from tests.interop.stories.java_story import drained, has_topic

__all__ = ["MESSAGES", "Admin", "Answer", "both_brokers", "make_home", "signing_admin"]

MESSAGES, SETTLED = 50, 40
QUEUES = {"orders": 4, "busy": 1, "history": 1}  # by topic
TIMEOUT_S = 30
TRIES = 3
TIMED_OUT = "RemotingTimeoutException"
# The first round of transaction checks makes two topics. On a busy machine one broker's round comes within the test and
# the other's does not, so neither begins one.
SETTINGS = {"transactionTimeOut": 6_000, "transactionCheckInterval": 3_600_000}
OURS = {"enablePropertyFilter": "true", **SETTINGS}


@dataclass
class Answer:
    """What mqadmin printed."""

    output: str
    errors: str

    def __str__(self) -> str:
        return self.output + self.errors


@dataclass
class Admin:
    """mqadmin for one broker, in one JVM for all commands; `names` are filled into its words."""

    server: Server
    drivers: Drivers
    driver: Driver
    names: dict[str, str] = field(default_factory=dict)
    consumers: dict[str, Driver] = field(default_factory=dict)  # by group
    asked: int = 0

    def consume(self, group: str, topic: str) -> None:
        """Start an ordered Java consumer."""
        at = {"name_server": self.server.name_server, "topic": topic, "group": group}
        self.consumers[group] = self.drivers.java("OrderlyConsumer", properties=None, **at)

    async def committed(self, group: str, topic: str) -> None:
        """Wait until the group has committed all there is. Java's first commit comes after ten seconds."""
        await until(lambda: drained(self.server, group, topic), f"{group} has committed all of {topic}", TIMEOUT_S)

    def producer(self, topic: str, group: str, messages: int, **arguments: Any) -> Driver:
        """An ordered Java producer."""
        return self.drivers.java(
            "OrderedProducer",
            name_server=self.server.name_server,
            topic=topic,
            queues=QUEUES.get(topic, 1),  # where it sends when it gets no route within 3 s
            producer_group=group,
            messages=messages,
            keys=8,
            tags="red,green",
            **arguments,
        )

    def run(self, words: str) -> Answer:
        """The answer to a command line such as "topicRoute -t orders"; the name server is added."""
        return asyncio.run(self.ask(words))

    async def ask(self, words: str) -> Answer:
        """As `run`; again when a broker did not answer within Java's few seconds, as on a busy machine."""
        for _ in range(2):
            answer = await self._ask(words)
            if TIMED_OUT not in str(answer):
                return answer
        return await self._ask(words)

    async def _ask(self, words: str) -> Answer:
        command = [word.format(**self.names) for word in words.split()]
        self.driver.write(json.dumps([*command, "-n", self.server.name_server]))
        self.asked += 1

        def answered() -> Event | None:
            answers = self.driver.of("output")
            return answers[-1] if len(answers) == self.asked else None

        event = await self.driver.until(answered, f"an answer to {words}", TIMEOUT_S)
        return Answer(event["output"], event["errors"])


@contextmanager
def both_brokers(folder: Path) -> Iterator[tuple[Admin, Admin]]:
    """mqadmin on our broker, and on Apache's, both in the same state.

    Java's client waits for a lock for a second. On a busy machine it then connects anew and pulls again, which the
    broker counts: so all begins anew where the counts are not those of a quiet one.
    """
    for left in reversed(range(TRIES)):
        with ExitStack() as stack:
            ours, theirs = begin(folder / f"{left}-left", stack)
            if left and not asyncio.run(are_quiet(ours, theirs)):
                continue
            yield ours, theirs
            return


def begin(folder: Path, stack: ExitStack) -> tuple[Admin, Admin]:
    home = make_home(folder / "home")
    for name in ("lockstep", "apache", "drivers"):
        (folder / name).mkdir()
    drivers = Drivers(folder / "drivers")
    stack.callback(drivers.end)
    options = [word for name, value in OURS.items() for word in ("-D", f"{name}={value}")]
    servers = [
        stack.enter_context(lockstep_server(folder / "lockstep", *options)),
        stack.enter_context(apache_server(folder / "apache", SETTINGS)),
    ]
    properties = {"rocketmq.home.dir": str(home)}
    ours, theirs = [Admin(server, drivers, drivers.java("MqAdmin", properties=properties)) for server in servers]
    asyncio.run(prepare_both(ours, theirs))
    stack.callback(lambda: asyncio.run(leave_both(ours, theirs)))
    return ours, theirs


async def are_quiet(*admins: Admin) -> bool:
    """Whether each message was stored and pulled once, and each consumer connected once."""
    quiet = {"msgPutTotalTodayNow": str(2 * MESSAGES + 1), "msgGetTotalTodayNow": str(2 * MESSAGES + SETTLED)}
    for admin in admins:
        async with admin.server.admin() as client:
            info = await client.broker_runtime(admin.server.broker)
            connected = [each for group in admin.consumers for each in (await client.connections(group)).values()]
        if not quiet.items() <= info.items() or [len(each.connection_set) for each in connected] != [1, 1]:
            return False
    return True


async def signing_admin(
    drivers: Drivers, server: Server, account: Credentials, properties: dict[str, str] | None = None
) -> Admin:
    """mqadmin with the account in its tools.yml, and -D properties."""
    home = make_home(Path(tempfile.mkdtemp(prefix="home-", dir=drivers.folder)) / "rocketmq")
    (home / "conf" / "tools.yml").write_text(f"accessKey: {account.access_key}\nsecretKey: {account.secret_key}\n")
    driver = drivers.java("MqAdmin", properties={"rocketmq.home.dir": str(home), **(properties or {})})
    await driver.wait_for("ready", 60)
    return Admin(server, drivers, driver)


def make_home(folder: Path) -> Path:
    """A ROCKETMQ_HOME with what mqadmin looks for there."""
    (folder / "conf").mkdir(parents=True)
    (folder / "conf" / "logback_tools.xml").write_text(LOGBACK.replace("WARN", "OFF"), encoding="utf-8")
    return folder


async def prepare_both(*admins: Admin) -> None:
    await asyncio.gather(*[prepare(admin) for admin in admins])


async def leave_both(*admins: Admin) -> None:
    for admin in admins:
        for consumer in admin.consumers.values():
            await consumer.kill()  # to close in order takes one eight seconds


async def prepare(admin: Admin) -> None:
    server = admin.server
    admin.names = {"broker": server.broker}
    await admin.driver.wait_for("ready")
    for topic, queues in QUEUES.items():
        await admin.ask(f"updateTopic -b {server.broker} -t {topic} -r {queues} -w {queues}")
        await until(partial(has_topic, server, topic), f"topic {topic}")
    first = admin.producer("orders", "p", SETTLED)
    assert await first.ended() == 0, first.tail()
    history = admin.producer("history", "p", MESSAGES)
    assert await history.ended() == 0, history.tail()
    for group, topic in {"settled": "orders", "online": "orders", "moved": "history"}.items():
        admin.consume(group, topic)
    # One message, and then it stays: a later one might come to one broker before its counts are read, to one after.
    producer = admin.producer("busy", "producing", 2, pause_ms=3_600_000)
    await admin.committed("settled", "orders")
    await admin.consumers.pop("settled").kill()
    second = admin.producer("orders", "p", MESSAGES - SETTLED, first=SETTLED)
    assert await second.ended() == 0, second.tail()
    await producer.wait_for("sent")
    await admin.committed("online", "orders")
    await admin.committed("moved", "history")
    for event in first.of("sent") + second.of("sent"):
        admin.names[f"id_{event['seq']}"] = event["offsetMsgId"]
        admin.names[f"unique_{event['seq']}"] = event["msgId"]
    admin.names["client"] = admin.consumers["online"].of("handled")[0]["clientId"]
