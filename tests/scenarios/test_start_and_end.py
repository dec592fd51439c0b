"""Starts and ends as sequences of requests: which ones a client sends, to which server, in which order (wire.md 12.1,
12.2)."""

from lockstep.client import ConsumerConfig, MessageExt, MessageModel, PushConsumer
from tests.scenarios.cluster import BROKER, GROUP, PRODUCER, TOPIC, Cluster
from tests.scenarios.scenario import scenario

NAMES = "names"
ROUTE, BEAT, MEMBERS = "GET_ROUTEINFO_BY_TOPIC", "HEART_BEAT", "GET_CONSUMER_LIST_BY_GROUP"
LOCK, UNLOCK, PULL, COMMIT = "LOCK_BATCH_MQ", "UNLOCK_BATCH_MQ", "PULL_MESSAGE", "UPDATE_CONSUMER_OFFSET"
QUERY, GOODBYE = "QUERY_CONSUMER_OFFSET", "UNREGISTER_CLIENT"


async def _broker_and_name_server(cluster: Cluster) -> None:
    await cluster.start_name_server(NAMES)
    await cluster.broker(queues=2)
    await cluster.world.sleep_ms(1_000)  # until it is registered


@scenario()
async def test_a_consumer_starts_in_the_articles_order(cluster: Cluster) -> None:
    """Route, heartbeat, members, lock, stored offset, pull: the first request of each kind follows the one before."""
    await _broker_and_name_server(cluster)
    await cluster.consumer("c1")
    await cluster.world.sleep_ms(500)
    assert cluster.request_log.firsts("c1") == [ROUTE, BEAT, MEMBERS, LOCK, QUERY, PULL]
    assert {request.server for request in cluster.request_log.of("c1", ROUTE)} == {NAMES}
    asked = [request for request in cluster.request_log.of("c1") if request.name != ROUTE]
    assert {request.server for request in asked} == {BROKER}
    before_members = [request.name for request in asked[: [request.name for request in asked].index(MEMBERS)]]
    assert set(before_members) == {BEAT}  # the broker knows the group before it is asked who is in it


@scenario()
async def test_each_queue_is_locked_before_its_offset_is_asked_and_that_before_it_is_pulled(cluster: Cluster) -> None:
    """One lock request for all new queues of a broker; then one query and one pull for each queue, of the topic and of
    the retry topic."""
    await _broker_and_name_server(cluster)
    await cluster.consumer("c1")
    await cluster.world.sleep_ms(500)
    locks, queries, pulls = (cluster.request_log.of("c1", name) for name in (LOCK, QUERY, PULL))
    assert (len(locks), len(queries), len(pulls)) == (2, 3, 3)  # one request for each topic
    assert cluster.request_log.all.index(locks[0]) < cluster.request_log.all.index(queries[0])
    assert sorted(line.fields["queue"] for line in cluster.events("queue_acquired", host="c1")) == [
        f"%RETRY%{GROUP}@{BROKER}:0", f"{TOPIC}@{BROKER}:0", f"{TOPIC}@{BROKER}:1"
    ]  # fmt: skip


@scenario()
async def test_a_change_of_queues_is_told_to_the_brokers_at_once(cluster: Cluster) -> None:
    """After each topic whose queues changed the consumer sends a heartbeat with the new version of its subscription:
    after the locks, and long before the timer's heartbeat."""
    await _broker_and_name_server(cluster)
    started_ms = cluster.world.elapsed_ms
    await cluster.consumer("c1")
    await cluster.world.sleep_ms(500)
    names = [request.name for request in cluster.request_log.of("c1", server=BROKER)]
    assert names.count(LOCK) == 2
    for place in [place for place, name in enumerate(names) if name == LOCK]:
        assert BEAT in names[place:]
    later = [request for request in cluster.request_log.of("c1", BEAT) if request.at_ms > started_ms]
    assert len(later) >= 2
    assert all(request.at_ms - started_ms < 1_000 for request in later)


@scenario()
async def test_a_consumer_ends_in_the_articles_order(cluster: Cluster) -> None:
    """It stores offsets, releases locks and unregisters. After that it sends nothing: no request of a timer, no pull,
    no lock."""
    await _broker_and_name_server(cluster)
    await cluster.producer()
    await cluster.consumer("c1")
    await cluster.at(7_000)
    await cluster.send(20)
    await cluster.all_seen()
    left_ms = cluster.world.elapsed_ms
    await cluster.leave("c1")
    await cluster.world.sleep_ms(100_000)
    last = [request.name for request in cluster.request_log.of("c1", since_ms=left_ms) if request.name != PULL]
    assert last == [COMMIT, COMMIT, COMMIT, UNLOCK, GOODBYE]  # two queues and the retry topic's
    assert all(request.one_way for request in cluster.request_log.of("c1", COMMIT, since_ms=left_ms))
    everything = cluster.request_log.of("c1")
    assert everything[-1].name == GOODBYE
    assert [cluster.committed(queue_id) for queue_id in range(2)] == [len(cluster.stored(0)), len(cluster.stored(1))]
    assert cluster.locks() == {}
    assert cluster.owner() is None


@scenario(also_fenced=True)
async def test_a_producer_starts_and_ends_in_order(cluster: Cluster) -> None:
    """It sends nothing before the first send; then it asks for the route, sends a heartbeat to the broker of the queue,
    and the message; at the end it unregisters."""
    await _broker_and_name_server(cluster)
    await cluster.producer()
    await cluster.world.sleep_ms(20_000)
    assert cluster.request_log.of(PRODUCER) == []
    await cluster.send(1)
    assert cluster.request_log.firsts(PRODUCER) == [ROUTE, BEAT, "SEND_MESSAGE_V2"]
    left_ms = cluster.world.elapsed_ms
    await cluster.leave(PRODUCER)
    await cluster.world.sleep_ms(100_000)
    assert [request.name for request in cluster.request_log.of(PRODUCER, since_ms=left_ms)] == [GOODBYE]
    await cluster.consumer("c1")
    await cluster.all_seen()


@scenario(also_fenced=True)
async def test_a_concurrent_consumer_starts_and_ends_without_locks(cluster: Cluster) -> None:
    """Route, heartbeat, members, stored offset, pull; at the end it stores offsets and unregisters. There is no lock
    request."""
    await _broker_and_name_server(cluster)
    await cluster.producer()
    await cluster.consumer("c1", ordering="none")
    await cluster.world.sleep_ms(500)
    assert cluster.request_log.firsts("c1") == [ROUTE, BEAT, MEMBERS, QUERY, PULL]
    await cluster.at(12_000)
    await cluster.send(20)
    await cluster.all_seen()
    left_ms = cluster.world.elapsed_ms
    await cluster.leave("c1")
    await cluster.world.sleep_ms(100_000)
    last = [request.name for request in cluster.request_log.of("c1", since_ms=left_ms) if request.name != PULL]
    assert last == [COMMIT, COMMIT, COMMIT, GOODBYE]
    assert cluster.request_log.of("c1", LOCK) == cluster.request_log.of("c1", UNLOCK) == []
    assert [cluster.committed(queue_id) for queue_id in range(2)] == [len(cluster.stored(0)), len(cluster.stored(1))]


@scenario(also_fenced=True)
async def test_a_broadcasting_consumer_asks_nobody_who_is_there(cluster: Cluster) -> None:
    """Route, heartbeat, pull. It has all queues and keeps offsets in a file, so it asks for no members, no locks, and
    no stored offset of a queue whose offset it knows; at the end it only unregisters."""
    await _broker_and_name_server(cluster)
    runtime = cluster.world.host("radio")
    texts: list[str] = []

    async def listen(messages: list[MessageExt], _context: object) -> None:
        texts.extend(message.body.decode() for message in messages)

    def consumer() -> PushConsumer:
        made = PushConsumer(
            "radios",
            name_server=cluster.name_server,
            config=ConsumerConfig(
                serialize_type=cluster.serialize_type, instance_name="radio", local_offset_folder="offsets"
            ),
            listener=listen,
            message_model=MessageModel.BROADCASTING,
            runtime=runtime,
        )
        made.subscribe(TOPIC)
        return made

    first = consumer()
    await runtime.run(first.start())
    await cluster.producer()
    await cluster.world.sleep_ms(1_000)
    await cluster.send(10)
    await cluster.world.until(lambda: len(texts) == 10)
    await runtime.run(first.shutdown())
    await cluster.world.sleep_ms(1)  # its last request may have been heard in this very millisecond
    left_ms = cluster.world.elapsed_ms
    second = consumer()
    await runtime.run(second.start())
    await cluster.world.sleep_ms(500)
    assert cluster.request_log.firsts("radio", since_ms=left_ms) == [ROUTE, BEAT, PULL]
    left_ms = cluster.world.elapsed_ms
    await runtime.run(second.shutdown())
    await cluster.world.sleep_ms(100_000)
    last = [request.name for request in cluster.request_log.of("radio", since_ms=left_ms) if request.name != PULL]
    assert last == [GOODBYE]
    for never in (LOCK, UNLOCK, MEMBERS, COMMIT, QUERY):
        assert cluster.request_log.of("radio", never) == [], never
    assert sorted(texts, key=int) == [str(number) for number in range(10)]
    await cluster.end(judge=False)
