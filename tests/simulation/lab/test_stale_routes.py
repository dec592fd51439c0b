"""A name server whose answers are old."""

from lockstep.simulation.lab.user.story import experiment
from lockstep.simulation.lab.user.story_cluster import StoryCluster


def test_a_name_server_answers_the_routes_of_some_time_ago() -> None:
    """A broker that left is in the answers for the lag, and one that came is missing as long."""
    seen: dict[int, int] = {}

    @experiment(brokers=2, name_servers=1, consumers=1, queues=2, rate=0, life="2m")
    async def story(cluster: StoryCluster) -> None:
        await cluster.start()
        cluster.fault("stale-routes names1+60s=20s")
        cluster.fault("leave broker2+30s")
        began_ms = cluster.world.elapsed_ms
        for second in (1, 19, 22, 31, 49, 52, 61):
            await cluster.at(began_ms + second * 1000)
            route_of = cluster.door("names1").route or cluster.name_server_at("names1").route
            route = route_of(cluster.topic)
            seen[second] = len(route.broker_datas) if route is not None else 0
        await cluster.finish()

    run = story.run()
    assert run.error is None
    assert seen == {1: 2, 19: 2, 22: 1, 31: 1, 49: 1, 52: 2, 61: 2}


def test_the_later_one_of_two_answers_and_both_end() -> None:
    """At the end the name server answers as before, in whatever order the two end."""
    ages: list[bool] = []

    @experiment(brokers=1, name_servers=1, consumers=1, queues=1, rate=0, life="90s")
    async def story(cluster: StoryCluster) -> None:
        await cluster.start()
        door = cluster.door("names1")
        for first, second in (("30s", "30s"), ("30s", "5s")):
            faults = [cluster.fault(f"stale-routes names1+{first}=20s")]
            await cluster.run_for("10s")
            faults.append(cluster.fault(f"stale-routes names1+{second}=20s"))
            for fault in faults:
                await fault
            ages.append(door.route is not None)

    assert story.run().error is None
    assert ages == [False, False]


def test_a_host_without_a_name_server_has_no_routes() -> None:
    """The error says so, and ends the run."""

    @experiment(consumers=1, queues=1, rate=0, life="10s")
    async def story(cluster: StoryCluster) -> None:
        await cluster.start()
        await cluster.fault("stale-routes c1+5s=1s")

    assert "no name server runs on 'c1'" in str(story.run().error)
