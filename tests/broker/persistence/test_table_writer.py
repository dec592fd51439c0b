"""Topics and groups are written to their files off the event loop, one write at a time, and replies wait for it."""

import errno
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.bodies.subscription_group import GroupRetryPolicy, SubscriptionGroupConfig
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import DeleteTopicRequestHeader
from lockstep.protocol.headers.messaging import CreateTopicRequestHeader
from tests.broker.helpers import NOW_MS, consumer, heartbeat_of
from tests.broker.persistence.kept_broker import Kept, kept, until

TOPICS = "topics.json.tmp"


def create(opened: Kept, topic: str) -> RemotingCommand | None:
    header = CreateTopicRequestHeader(topic, "TBW102", 2, 2, 6)
    return opened.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def under_way(opened: Kept) -> list[str]:
    """The files of topics that were or are being put on the disk: the older copy, then the file, each time."""
    return [name for path in opened.disk.synced if (name := path.rpartition("/")[2]).startswith("topics.json")]


async def test_a_topic_is_written_off_the_loop_and_the_reply_waits_for_it(tmp_path: Path) -> None:
    """A slow disk delays nothing else; the caller gets its reply when the topic is on the disk."""
    path = tmp_path / "config" / "topics.json"
    async with kept(tmp_path) as opened:
        opened.disk.synced.clear()
        opened.disk.sync_threads.clear()
        opened.disk.others_may_sync.clear()
        try:
            assert create(opened, "Made") is None
            await until(lambda: under_way(opened), "the file waits for the disk")
            assert opened.connection.replies == []
            assert "Made" not in path.read_text()
        finally:
            opened.disk.others_may_sync.set()
        await until(lambda: opened.connection.replies, "the request is answered")
        assert opened.connection.replies[0].code == ResponseCode.SUCCESS
        assert "Made" in path.read_text()
        assert threading.get_ident() not in opened.disk.sync_threads


async def test_what_rocketmq_5_sets_is_in_the_files_as_it_writes_it(tmp_path: Path) -> None:
    """Its broker opens them, and ours has the type of a topic and the order of a group after a restart."""
    policy = GroupRetryPolicy(is_exponential=True)
    group = SubscriptionGroupConfig("G", consume_message_orderly=True, retry_policy=policy)
    async with kept(tmp_path) as opened:
        header = CreateTopicRequestHeader("Fifo", "TBW102", 2, 2, 6, attributes="+message.type=FIFO")
        opened.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        body = encode_body(group, SerializeType.JSON)
        opened.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
        await until(lambda: len(opened.connection.replies) == 2, "both are on the disk")
    folder = tmp_path / "config"
    topics = json.loads((folder / "topics.json").read_text())["topicConfigTable"]
    assert topics["Fifo"]["attributes"] == {"message.type": "FIFO"}
    assert "attributes" not in topics["T"]
    row = json.loads((folder / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]["G"]
    assert (row["consumeMessageOrderly"], row["groupRetryPolicy"]["type"]) == (True, "EXPONENTIAL")
    async with kept(tmp_path) as opened:
        catalog = opened.broker.catalog
        topic = catalog.topics.get("Fifo")
        assert (topic is not None and topic.message_type, catalog.groups.get("G")) == ("FIFO", group)


async def test_changes_meanwhile_are_one_writing_of_the_newest(tmp_path: Path) -> None:
    """Never two writers on one file, and never an older state behind a newer one."""
    path = tmp_path / "config" / "topics.json"
    async with kept(tmp_path) as opened:
        opened.disk.synced.clear()
        opened.disk.others_may_sync.clear()
        try:
            create(opened, "Made0")
            await until(lambda: under_way(opened), "the file waits for the disk")
            for number in range(1, 50):
                create(opened, f"Made{number}")
            assert opened.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("Made0")) is None
            assert len(under_way(opened)) == 1
        finally:
            opened.disk.others_may_sync.set()
        await until(lambda: len(opened.connection.replies) == 51, "every request is answered")
        assert {reply.code for reply in opened.connection.replies} == {ResponseCode.SUCCESS}
        assert under_way(opened).count(TOPICS) == 2
        assert "Made49" in path.read_text()
        assert '"Made0"' not in path.read_text()


@pytest.mark.parametrize("flush_sync", [True, False])
async def test_a_message_is_acknowledged_only_when_its_topic_is_on_the_disk(tmp_path: Path, flush_sync: bool) -> None:
    """A kill at the moment of the reply loses neither; a send to a topic that is being written waits too."""
    folder, copy = tmp_path / "store", tmp_path / "copy"
    rare: dict[str, Any] = {"flush_offsets_interval_ms": 60_000, "checkpoint_interval_ms": 60_000}  # files stand still
    async with kept(folder, flush_sync=flush_sync, **rare) as opened:
        opened.disk.others_may_sync.clear()
        try:
            assert opened.send(b"first", topic="ByASend", queue_id=0) is None
            assert opened.send(b"second", topic="ByASend", queue_id=0) is None
            opened.flusher.check()
            await until(lambda: under_way(opened), "the topic is on its way")
            assert opened.connection.replies == []
        finally:
            opened.disk.others_may_sync.set()
        await until(lambda: len(opened.connection.replies) == 2, "both sends are answered")
        assert {reply.code for reply in opened.connection.replies} == {ResponseCode.SUCCESS}
        shutil.copytree(folder, copy)
    async with kept(copy) as again:
        assert again.store.max_offset("ByASend", 0) == 2


async def test_a_topic_that_cannot_be_written_is_not_acknowledged_and_tried_again(tmp_path: Path) -> None:
    """Its creator and its senders get the reason; the last write has the state at that time."""
    path = tmp_path / "config" / "topics.json"
    async with kept(tmp_path) as opened:
        opened.disk.bad_name = TOPICS
        create(opened, "Made")
        opened.send(b"lost with its topic", topic="ByASend", queue_id=0)
        await until(lambda: len(opened.connection.replies) == 2, "both are answered")
        codes = {reply.code: reply.remark or "" for reply in opened.connection.replies}
        assert set(codes) == {ResponseCode.SYSTEM_ERROR, ResponseCode.FLUSH_DISK_TIMEOUT}
        assert all("topics.json" in remark and "Input/output error" in remark for remark in codes.values())
        events = [fields for _, name, fields in opened.log.events if name == "config_write_failed"]
        assert [event["file"] for event in events] == ["topics.json"]
        opened.broker.catalog.topics.put(TopicConfig("Newest", 1, 1), NOW_MS)
        opened.disk.bad_name = ""
        await until(lambda: "Newest" in path.read_text(), "it is written after all")
        assert '"Made"' in path.read_text()
        create(opened, "After")
        await until(lambda: len(opened.connection.replies) == 3, "the next is answered")
        assert opened.connection.replies[2].code == ResponseCode.SUCCESS


async def test_a_message_and_its_new_topic_are_acknowledged_when_both_are_synced(tmp_path: Path) -> None:
    """The topic is on the disk here, and the sync of the log fails."""
    async with kept(tmp_path) as opened:
        opened.disk.sync_error = errno.EIO
        assert opened.send(b"one", topic="ByASend", queue_id=0) is None
        opened.flusher.check()
        await until(lambda: opened.connection.replies, "the send is answered")
        opened.disk.sync_error = 0
        assert "ByASend" in (tmp_path / "config" / "topics.json").read_text()
        assert [reply.code for reply in opened.connection.replies] == [ResponseCode.FLUSH_DISK_TIMEOUT]


async def test_a_group_that_cannot_be_written_is_not_acknowledged_to_who_made_it(tmp_path: Path) -> None:
    """An administrator makes it once, and no heartbeat brings its settings back."""
    async with kept(tmp_path) as opened:
        opened.disk.bad_name = "subscriptionGroup.json.tmp"
        body = encode_body(SubscriptionGroupConfig("G", retry_max_times=3), SerializeType.JSON)
        assert opened.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body) is None
        await until(lambda: opened.connection.replies, "the request is answered")
        opened.disk.bad_name = ""
        assert opened.connection.replies[0].code == ResponseCode.SYSTEM_ERROR
        assert "subscriptionGroup.json" in (opened.connection.replies[0].remark or "")


async def test_a_heartbeat_is_answered_though_its_group_cannot_be_written(tmp_path: Path) -> None:
    """Groups come again with the next heartbeat, so it is not refused, and sends do not depend on it."""
    async with kept(tmp_path) as opened:
        opened.disk.bad_name = "subscriptionGroup.json.tmp"
        opened.broker.catalog.groups.find("G", NOW_MS)
        opened.send(b"one")
        opened.flusher.check()
        await until(lambda: opened.connection.replies, "the send is answered")
        assert opened.connection.replies[0].code == ResponseCode.SUCCESS
        opened.disk.bad_name = ""
        path = tmp_path / "config" / "subscriptionGroup.json"
        await until(lambda: '"G"' in path.read_text(), "it is written after all")


async def test_a_heartbeat_and_its_notice_leave_together_whatever_the_disk_takes(tmp_path: Path) -> None:
    """A Java client asks the next broker when it has the notice, and registers the group there when it has the answer:
    nothing may come between the two. Group and topic are written soon after."""
    async with kept(tmp_path) as opened:
        body = encode_body(heartbeat_of("a", consumer("G", SubscriptionData.parse("T", "*"))), SerializeType.JSON)
        reply = opened.ask(RequestCode.HEART_BEAT, None, body)
        assert reply is not None
        assert (reply.code, len(opened.connection.pushed)) == (ResponseCode.SUCCESS, 1)
        path = tmp_path / "config" / "topics.json"
        await until(lambda: "%RETRY%G" in path.read_text(), "its topic is written")
