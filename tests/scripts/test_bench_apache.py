"""`make bench APACHE=1`: what it measures is what happened, and its verdicts follow from its figures."""

import asyncio
import json
from pathlib import Path

import pytest

from lockstep.client import AdminClient, MessageQueue
from lockstep.protocol.codes import RequestCode
from scripts.bench import cases, command
from scripts.bench.apache import pop, raw
from scripts.bench.apache.figures import ECHO, Case, Sample, in_turns
from scripts.bench.apache.floors import verdicts
from scripts.bench.apache.page import bench_page
from scripts.bench.apache.parts import TOPICS, Bench
from scripts.bench.apache.publish import published
from scripts.bench.apache.report import Report
from scripts.bench.apache.servers import APACHE, FENCED, FILES, MEMORY, served
from tests.browser import NEEDS_BROWSER, said_by

SECONDS = 0.05


def rates(*numbers: float, client_share: float = 0.1, broker_us: float = 10.0) -> list[Sample]:
    return [Sample(number, broker_us, client_share, 1.0) for number in numbers]


def test_figures_are_kept_beside_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In build/bench.json, where each command replaces its own."""
    monkeypatch.setattr(command, "OUTPUT", tmp_path / "bench.json")
    command.keep({"apache": 1, "pop": 1})
    case = Case({FENCED: rates(100, 200)})
    command.keep({"pop": {"pop, 32 acks": case.to_json()}})
    assert command.known_figures() == {"apache": 1, "pop": {"pop, 32 acks": case.to_json()}}


def test_a_ratio_is_the_median_of_the_ratios_within_a_round() -> None:
    """A round on a busy machine slows both brokers down, and does not change the ratio."""
    case = Case({APACHE: rates(100, 10, 100), FILES: rates(200, 20, 150)})
    assert case.ratio(FILES, case, APACHE) == 2.0
    assert case.median(APACHE) == 100


def test_brokers_take_turns() -> None:
    """Each round measures each case with each broker before the next round begins."""
    seen = []

    def measure(what: str) -> Sample:
        seen.append(what)
        return Sample(1.0)

    found = in_turns({"a": {"x": lambda: measure("ax"), "y": lambda: measure("ay")}, "b": {"x": lambda: measure("bx")}},
                     2, lambda _name, _done: None)  # fmt: skip
    assert seen == ["ax", "ay", "bx"] * 2
    assert len(found["a"].samples["y"]) == 2


@pytest.mark.parametrize(("client_share", "met", "how"), [(0.5, False, "rate"), (0.95, True, "CPU")])
def test_cpu_time_counts_where_the_client_is_the_limit(client_share: float, met: bool, how: str) -> None:
    """Equal rates miss the floor, unless the client has no time left and the broker uses half of Apache's CPU time."""
    samples = {APACHE: rates(100, broker_us=20), FILES: rates(100, broker_us=10, client_share=client_share)}
    (verdict,) = verdicts(Report({"arm": "pure"}, {"raw_pull_32": Case(samples)}))
    assert (verdict.met, verdict.how) == (met, how)


@pytest.mark.parametrize(("arm", "met"), [("native", False), ("pure", True)])
def test_our_client_is_compared_with_others_clients_on_apaches_broker(arm: str, met: bool) -> None:
    """Each floor names its own other side, and is higher with the native part."""
    report = Report({"arm": arm}, {
        "client_send_64": Case({APACHE: rates(10), FILES: rates(60), ECHO: rates(80)}),
        "client_send_64_batched": Case({APACHE: rates(30), FILES: rates(90)}),
        "raw_send_64": Case({APACHE: rates(45), FILES: rates(1)}),
    })  # fmt: skip
    found = {verdict.against: (verdict.seen, verdict.met) for verdict in verdicts(report)}
    assert found["Apache with a raw client, sends, 64 in flight"] == ("1.33", met)
    assert found["Apache with our client, sends in order, 64 in flight, in batches"] == ("2.00", met)
    assert found["a bare echo of single frames"] == ("0.75", met)
    assert "a raw client, sends, 64 in flight (0.02)" in report.apache_is_better()


def test_a_report_survives_its_file() -> None:
    """The figures in docs are the figures of the run."""
    report = published().native
    again = Report.from_json(json.loads(json.dumps(report.to_json())))
    assert again.to_json() == report.to_json()
    assert verdicts(again) == verdicts(report)


@pytest.mark.long
def test_the_raw_client_counts_what_the_broker_did(tmp_path: Path) -> None:
    """As many messages are stored as answers were counted, and each case of the raw client runs."""
    with served(tmp_path, (FILES, MEMORY), TOPICS) as contenders:
        bench = Bench(contenders, 1, SECONDS, SECONDS, 0, lambda _what, _done: None)
        bench.prepare(drains=False)
        client = raw.RawClient(contenders[FILES].server.broker)
        answers = client.run(raw.send_frames(), 64, SECONDS)
        client.close()
        assert asyncio.run(stored(contenders[FILES].server.name_server)) == answers >= 64
        found = bench.raw()
    assert all(sample.rate > 0 for case in found.values() for one in case.samples.values() for sample in one)


async def stored(name_server: str) -> int:
    async with AdminClient(name_server=name_server) as admin:
        queues = [MessageQueue(cases.SEND_TOPIC, "broker-a", queue_id) for queue_id in range(4)]
        return sum([await admin.max_offset(queue) for queue in queues])


@pytest.mark.long
def test_the_raw_client_refuses_an_answer_that_is_no_success(tmp_path: Path) -> None:
    """A pull from a topic that does not exist ends the measurement; it is not counted."""
    fields = {"consumerGroup": "g", "topic": "NoTopic", "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4,
              "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*"}  # fmt: skip
    with served(tmp_path, (MEMORY,), ()) as contenders:
        client = raw.RawClient(contenders[MEMORY].server.broker)
        with pytest.raises(RuntimeError, match="no success"):
            client.run([raw.frame(RequestCode.PULL_MESSAGE, 1, fields)], 1, SECONDS)
        client.close()


@pytest.mark.long
@NEEDS_BROWSER
@pytest.mark.long
@pytest.mark.parametrize("width", [1280, 500])
def test_the_page_of_a_run_shows_bars(tmp_path: Path, width: int) -> None:
    """A bar for each broker of each case, none wider than the page, and as many verdicts as floors."""
    report = published().native
    found = said_by(tmp_path, bench_page(report), """
        const bars = [...document.querySelectorAll(".rates rect")];
        results.bars = bars.length;
        results.empty = bars.filter((bar) => !bar.getBoundingClientRect().width).length;
        results.wide = document.documentElement.scrollWidth > window.innerWidth;
        results.verdicts = document.querySelectorAll("td .good-text, td .bad-text").length;
    """, width)  # fmt: skip
    measured = sum(len({APACHE, FILES, MEMORY} & {*case.samples}) for case in report.cases.values())
    assert found == {"bars": measured, "empty": 0, "wide": False, "verdicts": len(verdicts(report))}


@pytest.mark.long
def test_each_step_with_32_messages_is_measured(tmp_path: Path) -> None:
    """What is popped is acknowledged: the group's offset goes on."""
    with served(tmp_path, (FENCED,), ((raw.PULL_TOPIC, 4),)) as contenders:
        server = contenders[FENCED].server
        asyncio.run(cases.preload(server.name_server, raw.PULL_TOPIC, raw.PULL_MESSAGES, 1))
        for step in pop.STEPS:
            assert pop.measure(contenders[FENCED], step, SECONDS).rate > 0
        client = raw.RawClient(server.broker)
        reader = pop.Reader(client, pop.STEPS[-1])
        for _ in range(3):
            reader.step()
        client.close()
        assert asyncio.run(consumed(server.name_server, reader.group)) == 3 * raw.PULL_COUNT


async def consumed(name_server: str, group: str) -> int | None:
    async with AdminClient(name_server=name_server) as admin:
        return await admin.consumer_offset(group, MessageQueue(raw.PULL_TOPIC, "broker-a", 0))
