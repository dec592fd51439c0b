"""Faults that overlap on one host or link: the end of one ends no other, and the newest that lasts is in force."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from lockstep.simulation.lab.faults.fault import Lasts
from lockstep.simulation.lab.faults.table import FAULTS
from lockstep.simulation.lab.faults.words import fault_words
from lockstep.simulation.lab.user.story import experiment
from lockstep.simulation.lab.user.story_cluster import StoryCluster

AMOUNTS: Final = {  # of the first fault and of the second one; what each of them sets
    "drift": ("-2%", "1%", -20_000, 10_000),
    "slow-cpu": ("5ms", "1ms", 5000, 1000),
    "slow-disk": ("200ms", "20ms", 200, 20),
    "slow": ("250ms", "20ms", 250_000_000, 20_000_000),
    "late": ("250ms", "20ms", 250_000_000, 20_000_000),
    "slow-link": ("2kB/s", "9kB/s", 2000, 9000),
    "nat": ("5s", "9s", 5, 9),
    "nat-reset": ("5s", "9s", 5, 9),
    "jitter": ("800ms", "300ms", True, True),
    "stale-routes": ("20s", "5s", True, True),
    "slow-listener": ("2s", "1s", 2000, 1000),
}
_Probe = Callable[[StoryCluster], Any]


def _link(cluster: StoryCluster, source: str, target: str) -> Any:
    network = cluster.world.network
    return network.link(network.address_of(source), network.address_of(target))


def _latency_ns(cluster: StoryCluster, source: str, target: str) -> int:
    low_ns, high_ns = _link(cluster, source, target).latency_ns
    return high_ns if low_ns == high_ns else 0


def _host(cluster: StoryCluster) -> Any:
    return cluster.world.host("c1").host


def _nat(cluster: StoryCluster) -> int:
    nat = _link(cluster, "broker", "c1").nat
    return 0 if nat is None else nat.idle_ns // 1_000_000_000


def _jittery(cluster: StoryCluster) -> bool:
    options = cluster.world.options
    usual = (options.latency_us_min * 1000, options.latency_us_max * 1000)
    return bool(_link(cluster, "c1", "broker").latency_ns != usual)


# What a fault does to its host or link; nothing: 0, False or None.
IN_FORCE: Final[dict[str, _Probe]] = {
    **dict.fromkeys(("kill", "power-off", "leave"), lambda cluster: not cluster.is_up("c1")),
    "restart-broker": lambda cluster: not cluster.is_up("broker"),
    "stall": lambda cluster: _host(cluster).paused,
    "sleep": lambda cluster: _host(cluster).asleep,
    "drift": lambda cluster: cluster.world.clock("c1").ppm,
    "slow-cpu": lambda cluster: cpu.callback_ns // 1000 if (cpu := _host(cluster).cpu) else 0,
    "slow-disk": lambda cluster: cluster.world.disk("broker").slow_sync_ms,
    "hang-disk": lambda cluster: cluster.world.disk("broker").hangs,
    "partition": lambda cluster: _link(cluster, "c1", "broker").blocked and _link(cluster, "broker", "c1").blocked,
    "hold": lambda cluster: _link(cluster, "broker", "c1").blocked,
    "slow": lambda cluster: _latency_ns(cluster, "broker", "c1"),
    "late": lambda cluster: _latency_ns(cluster, "broker", "c1"),
    "jitter": _jittery,
    "slow-link": lambda cluster: queue.bytes_per_s if (queue := _link(cluster, "broker", "c1").queue) else 0,
    "nat": _nat,
    "nat-reset": _nat,
    "stale-routes": lambda cluster: cluster.door("broker").route is not None,
    "slow-listener": lambda cluster: cluster.listeners.slower_ms("c1"),
    "fail-listener": lambda cluster: cluster.listeners.fails("c1"),
}


def _hosts_of(name: str) -> str:
    return FAULTS[name].example.partition("@")[0]


def _seen(faults: list[tuple[int, str]], moments: tuple[int, ...], probe: _Probe) -> list[Any]:
    """Play faults at their seconds, and look at other seconds."""
    seen: list[Any] = []

    @experiment(consumers=1, queues=1, rate=0, life="2m", store="sync")
    async def story(cluster: StoryCluster) -> None:
        await cluster.start()
        began_ms, texts = cluster.world.elapsed_ms, dict(faults)
        for second in sorted({*texts, *moments}):
            await cluster.at(began_ms + second * 1000)
            if second in texts:
                cluster.fault(texts[second])
            if second in moments:
                seen.append(probe(cluster))

    run = story.run()
    assert run.error is None
    assert run.played is not None
    assert len(run.played.findings.bands) == len(faults), "each is played"
    assert run.played.findings.wrong == []
    return seen


def test_all_faults_that_last_are_looked_at() -> None:
    """The others are over at once."""
    assert set(IN_FORCE) == {name for name, fault in FAULTS.items() if fault.lasts is not Lasts.NEVER}


@pytest.mark.parametrize("name", IN_FORCE)
def test_the_end_of_one_ends_no_other(name: str) -> None:
    """From 5 s to 30 s and from 15 s to 60 s; from 5 s to 60 s and from 15 s to 30 s: the first one is back then."""
    one, other, first, second = AMOUNTS.get(name, ("", "", True, True))
    for first_s, second_s, left in ((25, 45, second), (55, 15, first)):
        faults = [
            (5, f"{name} {_hosts_of(name)}+{first_s}s{one and f'={one}'}"),
            (15, f"{name} {_hosts_of(name)}+{second_s}s{other and f'={other}'}"),
        ]
        assert _seen(faults, (4, 10, 20, 50, 70), IN_FORCE[name]) == [False, first, second, left, False]


@pytest.mark.parametrize(
    ("first", "second", "probe"),
    [
        ("kill c1+20s", "leave c1+40s", "kill"),
        ("leave c1+20s", "power-off c1+40s", "leave"),
        ("kill broker+20s", "restart-broker broker+40s", "restart-broker"),
        ("partition c1-broker+20s", "partition broker-c1+40s", "partition"),
        ("hold broker-c1+20s", "partition c1-broker+40s", "hold"),
        ("jitter c1-broker+20s=800ms", "late broker-c1+40s=20ms", "late"),
        ("nat c1-broker+20s=5s", "nat-reset broker-c1+40s=9s", "nat"),
    ],
)
def test_faults_of_two_kinds_overlap_too(first: str, second: str, probe: str) -> None:
    """From 5 s to 25 s and from 15 s to 55 s, on one process or link."""
    seen = _seen([(5, first), (15, second)], (20, 45, 70), IN_FORCE[probe])
    assert [bool(one) for one in seen] == [True, True, False]


def test_a_band_of_a_process_ends_with_its_start() -> None:
    """A fault whose end started nothing has no end: an explanation would say that the process started again."""
    events = ["kill c1@5s+10s", "kill c1@10s+20s", "leave c1@40s"]

    @experiment(consumers=2, queues=1, rate=0, life="1m", events=events)
    async def story(cluster: StoryCluster) -> None:
        await cluster.start()

    run = story.run()
    assert run.played is not None
    bands = run.played.findings.bands
    assert [(band.fault, band.at_ms, band.end_ms is None) for band in bands] == [
        ("kill", 5_000, True),
        ("kill", 10_000, False),
        ("leave", 40_000, True),
    ]
    assert [fault_words(band) for band in bands] == [
        "c1's process was killed",
        "c1 stayed down, and started again after 20.0 s",
        "c1 was shut down",
    ]


def test_a_kill_without_an_end_stays() -> None:
    """The end of an earlier kill starts nothing."""
    assert _seen([(5, "kill c1+20s"), (15, "kill c1")], (20, 40), IN_FORCE["kill"]) == [True, True]


def test_a_process_that_was_started_meanwhile_is_left_alone() -> None:
    """The scenario starts it before its fault ends, and it dies again: that is another fault's to end."""
    seen: list[bool] = []

    @experiment(consumers=1, queues=1, rate=0, life="2m")
    async def story(cluster: StoryCluster) -> None:
        await cluster.start()
        cluster.fault("kill c1+20s")
        await cluster.run_for("5s")
        await cluster.start_again("c1")
        await cluster.run_for("5s")
        cluster.fault("kill c1+40s")
        for duration in ("15s", "40s"):
            await cluster.run_for(duration)
            seen.append(cluster.is_up("c1"))

    assert story.run().error is None
    assert seen == [False, True]


def test_faults_that_overlap_end_when_all_is_healed() -> None:
    """The end of one brings no other back."""
    seen: list[bool] = []

    @experiment(consumers=1, queues=1, rate=0, life="2m")
    async def story(cluster: StoryCluster) -> None:
        await cluster.start()
        cluster.fault("partition c1-broker+40s")
        cluster.fault("partition c1-broker+20s")
        cluster.fault("stall c1+20s")
        await cluster.run_for("10s")
        cluster.world.heal()
        for duration in ("1s", "15s", "20s"):
            await cluster.run_for(duration)
            seen.append(_link(cluster, "c1", "broker").blocked or _host(cluster).paused)

    assert story.run().error is None
    assert seen == [False, False, False]


@pytest.mark.parametrize("name", IN_FORCE)
def test_each_kind_of_fault_that_overlaps_ends_once_healed(name: str) -> None:
    """The ends of both come after the healing, and neither fails."""
    one, other, _, _ = AMOUNTS.get(name, ("", "", True, True))
    seen: list[bool] = []

    @experiment(consumers=1, queues=1, rate=0, life="2m", store="sync")
    async def story(cluster: StoryCluster) -> None:
        await cluster.start()
        for duration, amount in (("25s", one), ("45s", other)):
            cluster.fault(f"{name} {_hosts_of(name)}+{duration}{amount and f'={amount}'}")
        await cluster.run_for("10s")
        cluster.world.heal()
        await cluster.run_for("60s")
        seen.append(bool(IN_FORCE[name](cluster)))

    assert story.run().error is None
    assert seen == [False]
