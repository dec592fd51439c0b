"""A group without order of Java's and our consumers, on either broker: what one fails, any of them gets again."""

from collections.abc import Callable

import pytest

from lockstep.client import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, MessageExt, PushConsumer
from tests.interop.harness.drivers import Drivers
from tests.interop.harness.installed import version_of
from tests.interop.harness.servers import Server
from tests.interop.harness.table import RowMaker
from tests.interop.stories.java_story import JavaStory, queues_of, shared_out
from tests.interop.stories.python_story import FAST_CONFIG, eventually

pytestmark = pytest.mark.timeout(540)
Fresh = Callable[[], str]
COUNT, QUEUES = 300, 6
FLAKY = range(0, COUNT, 50)  # each fails where it comes first


async def test_one_group_of_both(
    either: Server, drivers: Drivers, interop_row: RowMaker, fresh_topic: Fresh, fresh_group: Fresh
) -> None:
    """All share the queues; every message is done once, and each flaky one was tried twice."""
    story = JavaStory(drivers, either, interop_row)
    row = interop_row(
        "Java, Lockstep", version_of("java", "rocketmq-client"), f"both -> {either.name}", "one concurrent group"
    )
    topic, group = await either.create_topic(fresh_topic(), QUEUES), fresh_group()
    done: list[int] = []
    failed: list[int] = []

    async def listen(messages: list[MessageExt], context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        [message] = messages
        number = int(message.properties["seq"])
        context.delay_level_when_next_consume = 1
        if number in FLAKY and message.reconsume_times == 0:
            failed.append(number)
            return ConsumeConcurrentlyStatus.RECONSUME_LATER
        done.append(number)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    def consumer() -> PushConsumer:
        made = PushConsumer(group, name_server=either.name_server, config=FAST_CONFIG, listener=listen, ordering="none")
        made.subscribe(topic)
        return made

    answers = ",".join(f"{number}=FIRST" for number in FLAKY)
    java = await story.consumer("ConcurrentConsumer", topic, group, answers=answers, delay_level=1)
    async with consumer(), consumer():
        # Java's too: as long as it still pulls from a queue that is ours now, both handle its messages.
        await shared_out(either, group, topic, [QUEUES // 3] * 3)
        await story.produce(topic, COUNT, keys=60)

        async def all_done() -> bool:
            theirs = [event["seq"] for event in java.of("handled") if event["status"] == "CONSUME_SUCCESS"]
            return len(done) + len(theirs) >= COUNT

        await eventually(all_done, "everything done")
        await story.drain(group, topic)
    theirs = java.of("handled")
    finished = [event["seq"] for event in theirs if event["status"] == "CONSUME_SUCCESS"]
    given_back = [event["seq"] for event in theirs if event["status"] != "CONSUME_SUCCESS"]
    assert sorted([*done, *finished]) == list(range(COUNT))
    assert sorted([*failed, *given_back]) == list(FLAKY)
    assert done
    assert finished
    assert len(await queues_of(either, topic)) == QUEUES
    row.messages, row.duplicates = COUNT, len(FLAKY)
