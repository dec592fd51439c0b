"""`lockstep doctor` looks at Java's consumers, on either broker."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstep.client import Message
from tests.commands import Lockstep, Result
from tests.interop.harness.drivers import Driver, Drivers
from tests.interop.harness.installed import version_of
from tests.interop.harness.servers import Server
from tests.interop.harness.table import RowMaker
from tests.interop.stories.python_story import PythonStory, eventually

pytestmark = pytest.mark.timeout(540)
Fresh = Callable[[], str]


class Patient:
    """A consumer group of Java members on a topic of four queues, and the doctor."""

    def __init__(self, story: PythonStory, drivers: Drivers, topic: str, group: str) -> None:
        self.story = story
        self.topic = topic
        self.group = group
        self._drivers = drivers
        self._lockstep = Lockstep(story.server.name_server)

    async def join(self, main_class: str = "OrderlyConsumer", **arguments: Any) -> Driver:
        """Start a member and wait until it is ready."""
        who: dict[str, Any] = {"name_server": self.story.server.name_server, "topic": self.topic, "group": self.group}
        driver = self._drivers.java(main_class, **{**who, **arguments})
        await driver.wait_for("ready", 60)
        return driver

    async def look(self, *options: str) -> Result:
        return await asyncio.to_thread(self._lockstep, "doctor", "-g", self.group, *options)

    async def found(self, *rules: str) -> Result:
        """The look, in JSON, in which exactly these rules find something, but for the locks of our broker.

        Those live for 10 s, so that takeovers are quick, and Java's members renew them each 20 s.
        """
        looks: list[Result] = []

        async def same() -> bool:
            looks.append(await self.look("-o", "json"))
            return {row["rule"] for row in looks[-1].rows} - {"short-locks"} == set(rules)

        try:
            await eventually(same, f"the doctor finds {rules}")
        except AssertionError:
            raise AssertionError(f"not what was expected, {rules}: {(await self.look()).out}") from None
        return looks[-1]

    async def tells(self, status: int, out: str, err: str) -> None:
        """Wait until it ends so and says so: `out` among other things, `err` alone.

        Another look may find more than the last one: that a member renews late, or does not answer, for a moment.
        """
        told: list[Result] = []

        async def same() -> bool:
            told.append(await self.look())
            return (told[-1].status, told[-1].err) == (status, err) and out in told[-1].out

        try:
            await eventually(same, f"the doctor tells {out}")
        except AssertionError:
            raise AssertionError(f"not what was expected, {(status, out, err)}: {told[-1]}") from None


@pytest.fixture
async def patient(
    either: Server, drivers: Drivers, tmp_path: Path, interop_row: RowMaker, fresh_topic: Fresh, fresh_group: Fresh
) -> Patient:
    version = version_of("java", "rocketmq-client")
    interop_row("Lockstep", "0.1.0", f"doctor -> {either.name} {either.version}", f"Java {version} members")
    topic = await either.create_topic(fresh_topic(), 4)
    return Patient(PythonStory(either, tmp_path, interop_row), drivers, topic, fresh_group())


async def test_a_healthy_group(patient: Patient) -> None:
    """Two orderly members of Java: short locks alone are found. It is said what Apache's broker cannot tell."""
    await patient.join()
    await patient.join()
    await patient.story.send_keyed(patient.topic, 400)
    await patient.story.drain(patient.topic, patient.group)
    await patient.found()
    if patient.story.server.is_apache:
        rules = "flapping, late-renewals, short-locks, clocks-apart, delivery-holds-queue and stale-answers"
        blind = f"{rules} were not looked at: they need Lockstep's brokers"
        await patient.tells(0, "nothing found: ", f"lockstep: {blind}\n")
    else:
        told = "lockstep: 1 thing will break order, 0 warnings\n"
        await patient.tells(4, f"group {patient.group}: short-locks", told)


async def test_a_sick_group(patient: Patient) -> None:
    """A concurrent member with another subscription, and one key in two queues: each is found, with the members."""
    orderly = await patient.join()
    concurrent = await patient.join("ConcurrentConsumer", expression="TagA", batch=8)
    async with patient.story.producer() as producer:
        for queue in (await producer.queues(patient.topic))[:2]:
            await producer.send(Message(patient.topic, b"x", sharding_key="order-7"), queue=queue)
    told = await patient.found("mixed-order", "unequal-subscriptions", "unequal-settings", "key-in-several-queues")
    assert told.status == 4
    seen = {row["rule"]: row["evidence"] for row in told.rows}
    async with patient.story.server.admin() as admin:
        ids = await admin.consumer_ids(patient.group)
    one, other = (next(name for name in ids if f"@driver-{driver.pid}-" in name) for driver in (orderly, concurrent))
    assert seen["mixed-order"] == f"in order: {one}; concurrently: {other}"
    assert f"{other} has {patient.topic} 'TagA'" in seen["unequal-subscriptions"]
    assert seen["unequal-settings"] == f"consumeMessageBatchMaxSize: 1 at {one}; 8 at {other}"
    assert seen["key-in-several-queues"].startswith(f"key 'order-7' of {patient.topic} in {patient.topic}@broker-a:")


async def test_dead_letters(patient: Patient) -> None:
    """A member that never handles its messages: a warning, with their number."""
    await patient.join("ConcurrentConsumer", answer="LATER", delay_level=1, max_reconsume_times=1)
    await patient.story.send_keyed(patient.topic, 8)
    await patient.found("dead-letters")

    async def all_given_up() -> bool:
        told = await patient.look()
        said = f"warning  group {patient.group}: dead-letters", "8 dead letters, the last one"
        return told.status == 3 and all(words in told.out for words in said)

    await eventually(all_given_up, "a warning of eight dead letters")
