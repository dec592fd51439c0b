"""The broker's lock: how long it lives, when it is renewed, and how long its holder trusts it (wire.md 7)."""

from lockstep.simulation.articles.stories.locks import holder_is_killed, holder_renews
from tests.scenarios.cluster import BROKER, Cluster
from tests.scenarios.scenario import INSTANT, scenario

LOCK_LIFE_MS, BELIEF_MS, RENEWAL_MS = 60_000, 30_000, 20_000


@scenario(INSTANT)
async def test_a_crashed_holder_keeps_its_lock_60_000_ms(cluster: Cluster) -> None:
    """SIGKILL releases nothing: another client is refused 60 000 ms after the last renewal and granted the lock at 60
    001."""
    await holder_is_killed(cluster)
    refused = cluster.events("lock_refused", host=BROKER)
    assert [line.fields["age_ms"] for line in refused] == [10_000, LOCK_LIFE_MS]
    [taken] = cluster.events("lock_taken_over", host=BROKER)
    assert (taken.at_ms, taken.fields["age_ms"]) == (21_000 + LOCK_LIFE_MS + 1, LOCK_LIFE_MS + 1)


@scenario(INSTANT)
async def test_a_cut_off_holder_loses_its_lock_after_60_000_ms(cluster: Cluster) -> None:
    """The same behind a partition; the holder learns of the loss with its first renewal after it."""
    await cluster.broker(queues=1)
    await cluster.consumer("holder")
    await cluster.at(30_000)
    cluster.world.partition("holder", BROKER)
    renewed_ms = cluster.world.elapsed_ms - cluster.locks()[0].age_ms
    assert renewed_ms == 21_000
    await cluster.at(renewed_ms + LOCK_LIFE_MS)
    assert not await cluster.lock("rival")
    await cluster.at(renewed_ms + LOCK_LIFE_MS + 1)
    assert await cluster.lock("rival")
    assert cluster.world.elapsed_ms == renewed_ms + LOCK_LIFE_MS + 1  # asking took no time
    cluster.world.repair("holder", BROKER)
    await cluster.world.until(lambda: cluster.events("lock_lost", host="holder"), timeout_ms=RENEWAL_MS)


@scenario(INSTANT, also_fenced=True)
async def test_each_renewal_starts_the_life_anew(cluster: Cluster) -> None:
    """While the holder lives another client asks every second for five minutes and never gets the lock."""
    await cluster.broker(queues=1)
    await cluster.consumer("holder")
    for second in range(1, 301):
        await cluster.at(second * 1000)
        assert not await cluster.lock("rival")


@scenario(INSTANT)
async def test_locks_are_renewed_after_1_s_and_then_each_20_s(cluster: Cluster) -> None:
    """Each lock is requested when it is granted, 1 s after the start, and then every 20 s."""
    await holder_renews(cluster)
    await cluster.at(200_000)
    for queue in ("Aircraft@broker:0", "Aircraft@broker:1"):
        assert [line.at_ms for line in cluster.events("lock_granted", queue=queue)] == [500]
        renewals = cluster.events("lock_renewed", queue=queue)
        assert [line.at_ms for line in renewals] == list(range(1500, 200_000, RENEWAL_MS))
        assert [line.fields["age_ms"] for line in renewals] == [1000] + [RENEWAL_MS] * 9


@scenario(INSTANT)
async def test_a_holder_believes_30_000_ms(cluster: Cluster) -> None:
    """Cut off from the broker, a holder handles its messages until 30 000 ms after its last renewal, not longer."""
    await cluster.broker_and_producer(queues=1)
    await cluster.consumer("holder", work_ms=100)
    await cluster.send(700)
    await cluster.at(22_050)
    cluster.world.partition("holder", BROKER)
    await cluster.at(70_000)
    begins = [call.begin_ms for call in cluster.seen.of("holder")]
    assert 21_000 + BELIEF_MS - 100 < begins[-1] <= 21_000 + BELIEF_MS
    cluster.world.repair("holder", BROKER)
    await cluster.all_seen()
