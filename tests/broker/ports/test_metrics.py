"""What a broker tells Prometheus: names, labels and values, in steps, with a bound."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from lockstep.broker.core.revive import run_pops
from lockstep.broker.metrics.families import FAMILIES, Samples
from lockstep.broker.metrics.scrape import scrape
from lockstep.broker.metrics.server import metrics_of
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.bodies.locks import LockBatchBody
from lockstep.protocol.codes import RequestCode, SerializeType
from lockstep.protocol.headers.admin import DeleteTopicRequestHeader
from lockstep.protocol.headers.messaging import UpdateConsumerOffsetRequestHeader
from lockstep.protocol.headers.pop import AckRequestHeader, PopRequestHeader
from lockstep.protocol.receipts import ORDERED, Receipt
from tests.broker.helpers import NOW_MS, Peer, consumer, queues_of

DOCS = Path(__file__).parents[3] / "docs"
NODE = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}
LIFE_MS = 60_000


def samples_of(peer: Peer) -> Samples:
    taken: list[Samples] = []
    for _ in scrape(peer.broker, peer.now_ms, taken.append):
        assert not taken, "they are complete at the end"
    (samples,) = taken
    return samples


def values(peer: Peer, name: str) -> dict[tuple[str, ...], float]:
    """The values of a metric as Prometheus' own parser reads them, by its labels without those of the node."""
    registry, samples = CollectorRegistry(), samples_of(peer)

    class Collector:
        def collect(self) -> object:
            return metrics_of(samples)

    registry.register(Collector())  # type: ignore[arg-type]
    found = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            if sample.name == name:
                assert NODE.items() <= sample.labels.items()
                labels = [label for label in sample.labels if label not in NODE]
                found[tuple(sample.labels[label] for label in sorted(labels))] = sample.value
    return found


def lock(peer: Peer, client_id: str, count: int = 2) -> None:
    peer.answer(RequestCode.LOCK_BATCH_MQ, None, LockBatchBody("G", client_id, queues_of("T", count)))


def commit(peer: Peer, queue_id: int, offset: int) -> None:
    peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader("G", "T", queue_id, offset))


def test_messages_and_lag() -> None:
    """Counted by topic and group; the lag is of all queues, and its age that of the oldest message behind."""
    peer = Peer()
    peer.make_topics("T", queue_nums=2)
    peer.send_many(3, queue_id=0)
    peer.now_ms += 5000
    peer.send_many(2, queue_id=1)
    commit(peer, 0, 1)
    commit(peer, 1, 2)
    peer.now_ms += 7000
    assert values(peer, "rocketmq_messages_in_total")["false", "T"] == 5
    assert values(peer, "rocketmq_consumer_lag_messages") == {("G", "false", "false", "T"): 2}
    assert values(peer, "rocketmq_consumer_lag_latency") == {("G", "false", "false", "T"): 12_000}
    assert values(peer, "lockstep_oldest_unhandled_seconds") == {("G", "T"): 12}
    commit(peer, 0, 3)
    assert values(peer, "lockstep_oldest_unhandled_seconds") == {("G", "T"): 0}


def test_locks_takeovers_and_handovers() -> None:
    """Held queues; answers by outcome; a takeover with its cause and its time in the histogram."""
    peer = Peer()
    lock(peer, "a")
    lock(peer, "b")
    assert values(peer, "lockstep_lock_held") == {("G", "T"): 2}
    peer.now_ms += LIFE_MS + 1
    assert values(peer, "lockstep_lock_held") == {}
    lock(peer, "b", 1)
    assert values(peer, "lockstep_lock_grants_total") == {("granted",): 2, ("refused",): 2, ("taken_over",): 1}
    assert values(peer, "lockstep_lock_takeovers_total") == {("expired",): 1}
    assert values(peer, "lockstep_queue_owner_changes_total") == {("G", "T"): 1}
    peer.now_ms += LIFE_MS + 1
    lock(peer, "b", 1)
    assert values(peer, "lockstep_queue_owner_changes_total") == {("G", "T"): 1}, "it got its own lock again"
    buckets = values(peer, "lockstep_lock_handover_seconds_bucket")
    assert (buckets["60.0",], buckets["80.0",], buckets["+Inf",]) == (0, 1, 1)
    assert values(peer, "lockstep_lock_handover_seconds_sum") == {(): 60.001}


@pytest.mark.parametrize("mode", ["faithful", "fenced"])
def test_many_locks_of_one_group_are_read_in_steps(mode: str) -> None:
    """A group may have 20,000; the loop goes on between some hundreds."""
    settings: dict[str, Any] = {"lock_mode": mode, "fenced_queues_per_request_max": 4000}
    few, many = Peer(SerializeType.MSGPACK, **settings), Peer(SerializeType.MSGPACK, **settings)
    lock(few, "a", 10)
    lock(many, "a", 4000)
    steps = [sum(1 for _ in scrape(peer.broker, peer.now_ms, lambda _: None)) for peer in (few, many)]
    assert steps[1] - steps[0] >= 7
    assert values(many, "lockstep_lock_held") == {("G", "T"): 4000}


def test_very_many_queues_are_counted_in_steps() -> None:
    """Each may open a file."""
    few, many = Peer(), Peer()
    for peer, count in ((few, 10), (many, 400)):
        peer.make_topics("T", queue_nums=count)
        for queue_id in range(count):
            peer.send_many(1, queue_id=queue_id)
    steps = [sum(1 for _ in scrape(peer.broker, peer.now_ms, lambda _: None)) for peer in (few, many)]
    assert steps[1] - steps[0] >= 20
    assert values(many, "rocketmq_messages_in_total")["false", "T"] == 400


def test_refused_requests_of_fenced_locks() -> None:
    """By request and reason. Renewals that change nothing are counted too."""
    peer = Peer(SerializeType.MSGPACK, lock_mode="fenced")
    peer.make_topics("T", queue_nums=1)
    peer.heartbeat("a", consumer("G", SubscriptionData("T")))
    peer.answer(RequestCode.LOCK_BATCH_MQ, None, LockBatchBody("G", "a", queues_of("T", 1), (0,)))
    (row,) = tuple(peer.broker.ownership.table.rows(peer.now_ms))
    assert row.epoch is not None
    peer.answer(RequestCode.LOCK_BATCH_MQ, None, LockBatchBody("G", "a", queues_of("T", 1), (row.epoch,)))
    beside = peer.beside()
    beside.heartbeat("b", consumer("G", SubscriptionData("T")))
    commit(beside, 0, 3)
    assert values(peer, "lockstep_fenced_total") == {("other_owner", "commit"): 1}
    assert values(peer, "lockstep_lock_grants_total") == {("granted",): 1, ("renewed",): 1}
    assert values(peer, "rocketmq_consumer_connections") == {("push", "G", "PYTHON", "V4_9_8"): 2}


def pop(peer: Peer, topic: str = "T", *, in_order: bool = True, poll_ms: int = 0) -> None:
    header = PopRequestHeader("G", topic, 0, 1, 10_000, poll_ms, peer.now_ms, 0, order=in_order)
    peer.call(RequestCode.POP_MESSAGE, header)


def ack(peer: Peer, pop_ms: int) -> None:
    receipt = Receipt(0, pop_ms, 10_000, ORDERED, 0, "broker-a", 0, 0).encode()
    peer.answer(RequestCode.ACK_MESSAGE, AckRequestHeader("G", "T", 0, receipt, 0))


def test_deliveries_in_order() -> None:
    """Queues are held until an acknowledgement, or until the invisible time is over. A call waits meanwhile."""
    peer = Peer(lock_mode="fenced")
    peer.send_many(2)
    pop(peer)
    peer.now_ms += 10_000
    assert values(peer, "lockstep_pop_queues_held") == {}
    pop(peer)
    pop(peer, poll_ms=5000)
    assert values(peer, "lockstep_pop_queues_held") == {("G", "T"): 1}
    assert values(peer, "lockstep_held_pops") == {(): 1}
    peer.now_ms += 3000
    assert values(peer, "lockstep_pop_oldest_held_seconds") == {("G", "T"): 3}
    ack(peer, NOW_MS)
    ack(peer, NOW_MS + 10_000)
    assert values(peer, "lockstep_pop_queues_held") == {}
    assert values(peer, "lockstep_pop_answers_total") == {("G", "stale"): 1, ("G", "done"): 1}


def test_deliveries_without_order() -> None:
    """Under way until they are acknowledged; else stored again. A deleted topic has no series."""
    peer = Peer()
    peer.send_many(2)
    pop(peer, in_order=False)
    pop(peer, in_order=False)
    assert values(peer, "rocketmq_pop_checkpoint_buffer_size") == {(): 2}
    peer.now_ms += 10_000
    run_pops(peer.broker, peer.now_ms)
    assert values(peer, "rocketmq_pop_checkpoint_buffer_size") == {(): 0}
    revived = "rocketmq_pop_revive_retry_messages_total"
    assert values(peer, revived) == {("G", "PUT_OK", "T"): 2}
    peer.answer(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("T"))
    assert values(peer, revived) == {}


def test_many_popped_queues_are_read_in_steps() -> None:
    """Each has a window of messages that is looked through."""
    few, many = Peer(), Peer()
    for peer, count in ((few, 8), (many, 80)):
        for queue_id in range(count):
            peer.broker.messages.pops.fifo.queue("T", "G", queue_id, peer.now_ms)
    steps = [sum(1 for _ in scrape(peer.broker, peer.now_ms, lambda _: None)) for peer in (few, many)]
    assert steps[1] - steps[0] == 9


def test_a_family_has_a_bound() -> None:
    """Series above it are left out and counted."""
    peer = Peer(metrics_series_max=3)
    for number in range(5):
        topic = f"T{number}"
        peer.make_topics(topic, queue_nums=1)
        peer.send(topic)
    samples = samples_of(peer)
    assert len(samples.rows["rocketmq_messages_in_total"]) == 3
    assert samples.rows["lockstep_series_dropped"][()] == 4, "messages and bytes of two topics"


def test_a_series_that_is_left_out_counts_once() -> None:
    """Ten members of a group without room are one series, not ten."""
    peer = Peer(metrics_series_max=1)
    peer.heartbeat("kept", consumer("A", SubscriptionData("T")))
    for number in range(10):
        peer.beside().heartbeat(f"left{number}", consumer("B", SubscriptionData("T")))
    samples = samples_of(peer)
    assert len(samples.rows["rocketmq_consumer_connections"]) == 1
    assert samples.rows["lockstep_series_dropped"][()] == 1


@pytest.mark.parametrize("board", ["overview", "order"])
def test_boards_ask_for_metrics_that_there_are(board: str) -> None:
    """Each name in a query of a board is a metric, each label in it one of its labels."""
    text = (DOCS / "grafana" / f"{board}.json").read_text(encoding="utf-8")
    queries = [target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"]]
    assert len(queries) >= 8
    for query in queries:
        check_query(query)


def test_alerts_ask_for_metrics_that_there_are() -> None:
    """The rules of docs/alerts.yml too; promtool reads them, where it is installed."""
    path = DOCS / "alerts.yml"
    text = path.read_text(encoding="utf-8")
    queries = re.findall(r"^\s+expr: (.+)$", text, re.MULTILINE)
    assert len(queries) == text.count("- alert: ") >= 5
    for query in queries:
        check_query(query)
    promtool = shutil.which("promtool")
    if promtool is not None:
        subprocess.run([promtool, "check", "rules", str(path)], check=True, stdout=subprocess.DEVNULL)


def check_query(query: str) -> None:
    names = re.findall(r"\b(?:lockstep|rocketmq)_\w+", query)
    assert names, query
    families = [FAMILIES[re.sub(r"_(bucket|sum|count)$", "", name)] for name in names]
    labels = {"le", *(label for family in families for label in family.labels)}
    used = [label.strip() for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(",")]
    used += re.findall(r"[{,]\s*(\w+)\s*[=!]~?\"", query)
    assert set(used) <= labels, query
