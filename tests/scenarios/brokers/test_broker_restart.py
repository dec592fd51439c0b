"""A broker with a store in memory restarts empty, without locks, offsets and messages, and its clients recover."""

from tests.scenarios.cluster import BROKER, Cluster
from tests.scenarios.scenario import scenario

ILLEGAL_MS, ROUND_MS = 10_000, 20_000


@scenario()
async def test_a_restarted_broker_forgets_its_locks(cluster: Cluster) -> None:
    """Its lock table is empty. The first client that asks for a queue gets it; the old holder reconnects within seconds
    and gets the rest."""
    await cluster.broker(queues=2)
    await cluster.consumer("c1")
    await cluster.at(45_000)
    assert not await cluster.lock("rival", 0)
    cluster.crash(BROKER)
    await cluster.at(45_100)
    await cluster.broker(queues=2)
    assert cluster.locks() == {}
    assert await cluster.lock("rival", 0)
    await cluster.at(55_000)
    c1, rival = cluster.world.host("c1").address, cluster.world.host("rival").address
    assert (cluster.owner(0), cluster.owner(1)) == (rival, c1)
    assert [line.fields["queue"] for line in cluster.events("lock_lost", host="c1")] == [f"Aircraft@{BROKER}:0"]


@scenario(also_fenced=True)
async def test_clients_reconnect_and_lock_again(cluster: Cluster) -> None:
    """Consumers reconnect within seconds, and each first asks for the locks that it had. The first of them is alone for
    a moment and takes free queues; two rebalances later the shares are as before."""
    await cluster.broker_and_producer(queues=4)
    await cluster.consumer("c1")
    await cluster.consumer("c2")
    await cluster.send(20)
    await cluster.at(50_000)
    before = [cluster.owner(queue_id) for queue_id in range(4)]
    cluster.crash(BROKER)
    await cluster.at(55_000)
    await cluster.broker(queues=4)
    await cluster.at(57_000)
    granted = cluster.events("lock_granted", since_ms=55_000)
    client_id = granted[0].fields["client_id"]
    own = [f"Aircraft@{BROKER}:{queue_id}" for queue_id in range(4) if client_id.startswith(f"{before[queue_id]}@")]
    first = [line.fields["queue"] for line in granted if line.fields["client_id"] == client_id]
    assert [queue for queue in first if queue.startswith("Aircraft")][:2] == own
    await cluster.world.until(
        lambda: [cluster.owner(queue_id) for queue_id in range(4)] == before, timeout_ms=2 * ROUND_MS
    )
    await cluster.send(20)
    await cluster.all_seen()


@scenario(also_fenced=True)
async def test_messages_of_an_emptied_log_are_handled_from_its_beginning(cluster: Cluster) -> None:
    """Also those that were stored before the consumer was back, whose offsets it had read already."""
    await cluster.broker_and_producer(queues=2)
    await cluster.consumer("c1")
    await cluster.send(40)
    await cluster.all_seen()
    await cluster.at(30_000)
    assert cluster.committed(0) + cluster.committed(1) == 40
    cluster.crash(BROKER)
    await cluster.at(31_000)
    await cluster.broker(queues=2)
    await cluster.send(4)  # fewer than were there before: RocketMQ's client would begin behind them
    await cluster.all_seen()
    await cluster.send(40)
    await cluster.all_seen()
    report = await cluster.end()
    assert (report.handled, report.emptied) == (84, 0)


@scenario(also_fenced=True)
async def test_an_emptied_log_that_has_grown_beyond_what_was_read(cluster: Cluster) -> None:
    """No pull is illegal then: the consumer sees by the broker's run that the log began again."""
    await cluster.broker_and_producer(queues=2)
    await cluster.consumer("c1")
    await cluster.send(10)
    await cluster.all_seen()
    await cluster.at(30_000)
    cluster.crash(BROKER)
    cluster.cut_off("c1")
    await cluster.at(31_000)
    await cluster.broker(queues=2)
    await cluster.send(30)
    cluster.reconnect("c1")
    await cluster.all_seen()
    assert not cluster.events("offset_illegal", host="c1")
    assert (await cluster.end()).handled == 40


@scenario()
async def test_a_broker_that_keeps_its_log_is_gone_on_with(cluster: Cluster) -> None:
    """A new connection to the same run, and a new run with the whole log, change nothing."""
    await cluster.broker_and_producer(queues=2, data_dir="data")
    await cluster.consumer("c1")
    await cluster.send(10)
    await cluster.all_seen()
    cluster.crash(BROKER)
    await cluster.at(40_000)
    await cluster.broker(queues=2, data_dir="data")
    await cluster.send(10)
    await cluster.all_seen()
    assert not cluster.events("log_went_back", host="c1")
    assert not [record for record in cluster.records("c1") if record["event"] == "reset"]


@scenario(also_fenced=True)
async def test_what_a_memory_store_loses_is_counted(cluster: Cluster) -> None:
    """Messages that were not handled when the broker died are lost, and the report counts them."""
    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1", work_ms=1000, pull_batch_size=1, pull_threshold_for_queue=1)
    await cluster.send(20)
    await cluster.world.until(lambda: cluster.seen.texts().count("4"))
    cluster.crash(BROKER)
    await cluster.world.sleep_ms(1000)
    await cluster.broker(queues=1)
    await cluster.world.sleep_ms(40_000)
    await cluster.send(5)
    await cluster.world.until(lambda: cluster.seen.texts().count("24"))
    await cluster.world.sleep_ms(1000)
    cluster.expected.emptied = 20 - len([text for text in cluster.seen.texts() if int(text) < 20])
    assert 10 <= cluster.expected.emptied <= 15


@scenario(also_fenced=True)
async def test_a_clean_shutdown_says_goodbye(cluster: Cluster) -> None:
    """Clients use a broker again after its clean shutdown and start; new messages are in order."""
    await cluster.broker_and_producer(queues=2)
    await cluster.consumer("c1")
    await cluster.send(10)
    await cluster.all_seen()
    await cluster.stop_broker()
    await cluster.world.sleep_ms(5_000)
    await cluster.broker(queues=2)
    await cluster.world.sleep_ms(40_000)
    await cluster.send(30)
    await cluster.all_seen()


@scenario()
async def test_a_listener_that_outlives_the_store_is_alone(cluster: Cluster) -> None:
    """A listener still handles a message of the old store when the offset is reset. The queue is taken again after this
    call, and then the messages of the new store are handled. No queue has two listeners at once."""
    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("c1", work_ms=1000, works_ms={"1": 40_000})
    await cluster.send(2)
    await cluster.world.until(lambda: cluster.seen.texts() == list("01"))
    cluster.crash(BROKER)
    await cluster.world.sleep_ms(1000)
    await cluster.broker(queues=1)
    await cluster.world.until(lambda: cluster.events("reset_waits_for_listener", host="c1"))
    assert cluster.seen.running("c1")
    assert len(cluster.events("queue_acquired", host="c1", queue=f"Aircraft@{BROKER}:0")) == 1
    await cluster.send(2)
    await cluster.all_seen()
    old, new = cluster.seen.all[1:3]
    assert new.begin_ms >= old.end_ms >= 40_000
