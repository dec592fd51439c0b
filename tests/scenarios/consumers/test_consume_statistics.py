"""Members of each ordering report pulls and listener calls through a broker, at the borders of time windows."""

from lockstep.client import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus, MessageExt
from lockstep.client.consumer.dispatch.table import OrderingName
from lockstep.order import Cause
from lockstep.protocol.bodies.client import ConsumerRunningInfo, ConsumeStatus
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.headers.admin import GetConsumerRunningInfoRequestHeader
from tests.scenarios.cluster import GROUP, TOPIC, Cluster
from tests.scenarios.scenario import scenario

Answer = ConsumeOrderlyStatus | ConsumeConcurrentlyStatus | None
AGAIN: dict[OrderingName, Answer] = {
    "queue": ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT,
    "key": ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT,
    "none": ConsumeConcurrentlyStatus.RECONSUME_LATER,
}
DONE: dict[OrderingName, Answer] = {"queue": None, "key": None, "none": ConsumeConcurrentlyStatus.CONSUME_SUCCESS}
STARTED_MS, SENT_MS, FAILED, CALL_MS = 1000, 25_000, 6, 20


async def status(cluster: Cluster, client_id: str) -> ConsumeStatus:
    header = GetConsumerRunningInfoRequestHeader(GROUP, client_id)
    reply = await cluster.call("admin", RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    assert reply.code == 0, reply.remark
    return decode_body(ConsumerRunningInfo, reply.body, reply.serialize_type).status_table[TOPIC]


async def play(cluster: Cluster, ordering: OrderingName) -> None:
    """Of 30 messages 6 fail once. A rate shows at the next sample of 10 s and is gone a minute later; failures show
    from the sample of 10 min on."""
    failed: set[str] = set()

    def answer(message: MessageExt, _context: object) -> Answer:
        text = message.body.decode()
        if int(text) % 5 == 0 and text not in failed:
            failed.add(text)
            return AGAIN[ordering]
        return DONE[ordering]

    cluster.expected.duplicates = set() if ordering == "none" else {Cause.SUSPEND}
    await cluster.broker_and_producer(queues=1)
    await cluster.at(STARTED_MS)
    consumer = await cluster.consumer("c1", ordering=ordering, work_ms=CALL_MS, answer=answer)
    await cluster.at(SENT_MS)
    await cluster.send(30, keys=30, queue_id=0)
    await cluster.at(STARTED_MS + 29_000)
    assert (await status(cluster, consumer.client_id)) == ConsumeStatus(), "no sample since"
    await cluster.at(STARTED_MS + 41_000)
    found = await status(cluster, consumer.client_id)
    assert found.pull_tps > 0
    assert found.consume_ok_tps > 0
    assert found.consume_failed_tps > 0
    assert CALL_MS <= found.consume_rt <= CALL_MS + 2
    assert found.consume_failed_msgs == 0
    await cluster.at(STARTED_MS + 599_000)
    quiet = await status(cluster, consumer.client_id)
    assert quiet == ConsumeStatus(), "a minute later nothing is left of it, and the hour has no sample yet"
    await cluster.at(STARTED_MS + 602_000)
    told = await status(cluster, consumer.client_id)
    assert told.consume_failed_msgs == FAILED
    assert CALL_MS <= told.consume_rt <= CALL_MS + 2, "the hour's, as the minute has none"
    assert (told.pull_tps, told.consume_ok_tps) == (0.0, 0.0)


@scenario()
async def test_statistics_in_queue_order(cluster: Cluster) -> None:
    """The message of a suspended queue counts as failed each time."""
    await play(cluster, "queue")


@scenario()
async def test_statistics_in_key_order(cluster: Cluster) -> None:
    """The message of a parked key counts as failed each time."""
    await play(cluster, "key")


@scenario()
async def test_statistics_without_order(cluster: Cluster) -> None:
    """A message that is sent back counts as failed; its retry counts under the retry topic."""
    await play(cluster, "none")
