"""Java's clients and mqadmin on `--brokers 2`."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.harness.drivers import Drivers
from tests.interop.harness.installed import require, version_of
from tests.interop.harness.servers import Server, lockstep_server
from tests.interop.harness.table import RowMaker
from tests.interop.stories.java_story import JavaStory, in_order
from tests.interop.stories.mqadmin_story import Admin, make_home

pytestmark = pytest.mark.timeout(360)
Fresh = Callable[[], str]
BROKERS, QUEUES = ["broker-a", "broker-b"], 4


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Server]:
    """Two brokers of ours under one name server."""
    (tmp_path / "brokers").mkdir()
    with lockstep_server(tmp_path / "brokers", "--brokers", "2") as server:
        yield server


async def test_ordered_clients_of_java(
    two: Server, drivers: Drivers, interop_row: RowMaker, fresh_topic: Fresh, fresh_group: Fresh
) -> None:
    """Two thousand messages of fifty keys, over the queues of both brokers and two consumers: all once, in order."""
    story = JavaStory(drivers, two, interop_row)
    row = story.row("ordered producer, two push consumers, --brokers 2")
    topic, group = await two.create_topic(fresh_topic(), QUEUES), fresh_group()
    consumers = [await story.consumer("OrderlyConsumer", topic, group) for _ in range(2)]
    producer = await story.produce(topic, 2_000, keys=50)
    await story.handled(2_000, *consumers)
    await story.drain(group, topic)
    await story.finish(group, topic, *consumers)
    report = in_order(row, topic, producer, *consumers)
    assert report.handled == 2_000
    queues = Counter((event["broker"], event["queueId"]) for event in producer.of("sent"))
    assert sorted({broker for broker, _ in queues}) == BROKERS
    assert len(queues) == 2 * QUEUES


async def test_mqadmin_sees_both(
    two: Server, drivers: Drivers, interop_row: RowMaker, tmp_path: Path, fresh_topic: Fresh
) -> None:
    """clusterList has a line a broker; updateTopic -c makes a topic on both, as topicRoute shows."""
    require("drivers")
    interop_row("mqadmin", version_of("java", "rocketmq-tools"), "mqadmin -> Lockstep", "clusterList, --brokers 2")
    driver = drivers.java("MqAdmin", properties={"rocketmq.home.dir": str(make_home(tmp_path / "home"))})
    await driver.wait_for("ready", 60)
    admin = Admin(two, drivers, driver)
    lines = (await admin.ask("clusterList")).output.splitlines()
    rows = [line.split() for line in lines if line.startswith("DefaultCluster")]
    assert [(found[1], found[3]) for found in rows] == list(zip(BROKERS, two.broker.split(","), strict=True))
    topic = fresh_topic()
    made = await admin.ask(f"updateTopic -c DefaultCluster -t {topic} -r {QUEUES} -w {QUEUES}")
    assert all(f"create topic to {address} success" in made.output for address in two.broker.split(","))
    route = (await admin.ask(f"topicRoute -t {topic}")).output
    assert all(f'"brokerName":"{name}"' in route for name in BROKERS)
