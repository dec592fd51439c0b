"""mqadmin on our broker prints what it prints on Apache's, line by line."""

import asyncio
import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.integration.harness.processes import until
from tests.interop.harness.installed import require, version_of
from tests.interop.harness.table import Row, RowMaker
from tests.interop.stories.java_story import has_topic
from tests.interop.stories.mqadmin_cases import CASES, STATS, SUMS_OF_A_DAY, Case
from tests.interop.stories.mqadmin_masks import errors_of, masked
from tests.interop.stories.mqadmin_story import MESSAGES, Admin, Answer, both_brokers

pytestmark = pytest.mark.timeout(540)

# brokerStatus: what the two cannot have in common.
APART = {
    "brokerVersion": "Apache's broker is 4.9.7",
    "brokerVersionDesc": "the same",
    "earliestMessageTimeStamp": "Apache's says -1 while its log is short",
    "remainTransientStoreBufferNumbs": "a buffer that ours does not have",
    "putMessageDistributeTime": "Apache's says null until its first minute is over",
}
MEASURED = r"bootTimestamp|runtime|\w+Tps|putLatency\w+|commitLogD\w+|remainHow\w+|consumeQueueDiskRatio|\w+TimeMax"
MEASURED += "|msgGetTotalTodayNow"  # what clients pull again when they are reset depends on when
SIZES = r"\w+QueueCapacity"  # of queues before threads; ours has neither
# getBrokerConfig: the settings whose values depend on where the two run, and how.
HERE = {
    "namesrvAddr",
    "listenPort",
    "storePathRootDir",
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "fileReservedTime",
    "diskMaxUsedSpaceRatio",
}
SHARED_SETTINGS = 16
SAMPLED_S = 40  # every ten seconds, of each broker's own clock


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Admin, Admin]]:
    """mqadmin on our broker and on Apache's, for all cases."""
    for part in ("drivers", "apache"):
        require(part)
    with both_brokers(tmp_path_factory.mktemp("mqadmin")) as admins:
        yield admins


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_same_output(both: tuple[Admin, Admin], case: Case, interop_row: RowMaker) -> None:
    """Every line of every command is the same on both, but for what is masked."""
    row = make_row(interop_row, case.name)
    ours, theirs = both
    lines = 0
    for command in case.commands:
        our, their = shown(ours.run(command), case), shown(theirs.run(command), case)
        assert our == their, command
        lines += len(their)
    assert lines
    row.scenario += f": {lines} lines as from Apache's {theirs.server.version}"


def test_broker_status(both: tuple[Admin, Admin], interop_row: RowMaker) -> None:
    """All names of brokerStatus are there; counters are equal, measurements are measurements."""
    row = make_row(interop_row, "brokerStatus")
    ours, theirs = [pairs(admin.run("brokerStatus -b {broker}"), ":") for admin in both]
    wanted = {name: value for name, value in theirs.items() if "/" not in name}  # a directory has its own line
    assert sorted(ours) == sorted(wanted)
    measured = [name for name in wanted if re.fullmatch(f"{MEASURED}|{SIZES}", name)]
    counted = [name for name in wanted if name not in APART and name not in measured]
    assert {name: ours[name] for name in counted} == {name: wanted[name] for name in counted}
    assert all(re.search(r"\d", ours[name]) for name in measured)
    row.scenario += f": {len(counted)} values equal, {len(measured)} measured, all {len(wanted)} names"


def test_broker_config(both: tuple[Admin, Admin], interop_row: RowMaker) -> None:
    """The settings that both brokers have are listed with equal values."""
    row = make_row(interop_row, "getBrokerConfig")
    ours, theirs = [pairs(admin.run("getBrokerConfig -b {broker}"), "=") for admin in both]
    shared = [name for name in ours if name in theirs and name not in HERE]
    assert len(shared) >= SHARED_SETTINGS
    assert {name: ours[name] for name in shared} == {name: theirs[name] for name in shared}
    row.scenario += f": {len(shared)} settings as Apache's; it has {len(theirs)}, most for threads and files"


def test_active_topics(both: tuple[Admin, Admin], interop_row: RowMaker) -> None:
    """A topic counts as active once its sends were sampled, which is for less than a minute, on both."""
    make_row(interop_row, "statsAll -a")
    ours, theirs = asyncio.run(active_of(both))
    assert ours == theirs
    assert any("counted" in line for line in ours)


async def active_of(admins: tuple[Admin, Admin]) -> list[list[str]]:
    return list(await asyncio.gather(*[activity(admin) for admin in admins]))


async def activity(admin: Admin) -> list[str]:
    await admin.ask("updateTopic -b {broker} -t counted -r 1 -w 1")
    await until(partial(has_topic, admin.server, "counted"), "topic counted")

    async def listed() -> list[str] | None:
        answer = await admin.ask("statsAll -a -t counted")
        lines = masked(answer.output, (STATS, SUMS_OF_A_DAY))
        return lines if any("counted" in line for line in lines) else None

    assert not await listed()  # nothing was sent to it yet
    producer = admin.producer("counted", "counting", 1)  # mqadmin's own sendMessage works once in a JVM
    assert await producer.ended() == 0, producer.tail()
    return await until(listed, "statsAll -a names the topic", SAMPLED_S)


def test_exports(both: tuple[Admin, Admin], interop_row: RowMaker, tmp_path: Path) -> None:
    """The files of the exports name the same topics, groups and settings."""
    make_row(interop_row, "exportMetadata, exportConfigs, exportMetrics")
    found = []
    for admin in both:
        folder = tmp_path / admin.server.name.split()[0]
        for command in ("exportMetadata", "exportConfigs", "exportMetrics"):
            answer = admin.run(f"{command} -c DefaultCluster -f {folder}")
            assert "success" in answer.output, answer.errors
        files = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in folder.iterdir()}
        metadata, configs = files["metadata.json"], files["configs.json"]
        assert files["metrics.json"]["totalData"]
        found.append((sorted(metadata["topicConfigTable"]), sorted(metadata["subscriptionGroupTable"]), shape(configs)))
    assert found[0] == found[1]


def test_a_reset_is_followed(both: tuple[Admin, Admin], interop_row: RowMaker) -> None:
    """A consumer that is online goes back to where mqadmin sends its group, and handles everything again."""
    row = make_row(interop_row, f"resetOffsetByTime: a Java consumer handles all {MESSAGES} again")
    asyncio.run(reset_both(*both))
    row.messages, row.duplicates = 2 * MESSAGES, MESSAGES


async def reset_both(*admins: Admin) -> None:
    await asyncio.gather(*[reset_and_follow(admin) for admin in admins])


async def reset_and_follow(admin: Admin) -> None:
    consumer = admin.consumers["moved"]
    assert len(consumer.of("handled")) == MESSAGES
    answer = await admin.ask("resetOffsetByTime -g moved -t history -s 1000000000000")
    assert "rollback consumer offset" in answer.output, answer.errors
    await consumer.until(lambda: len(consumer.of("handled")) == 2 * MESSAGES or None, "everything handled twice", 40)


def make_row(interop_row: RowMaker, scenario: str) -> Row:
    return interop_row("mqadmin", version_of("java", "rocketmq-tools"), "mqadmin -> Lockstep", scenario)


def shown(answer: Answer, case: Case) -> list[str]:
    lines = masked(answer.output, case.masks)
    return (sorted(lines) if case.any_order else lines) + errors_of(answer.errors)


def pairs(answer: Answer, separator: str) -> dict[str, str]:
    """ "name : value" or "name = value" lines."""
    split = [line.partition(separator) for line in answer.output.splitlines() if not line.startswith("=")]
    return {name.strip(): value.strip() for name, found, value in split if found}


def shape(configs: dict[str, dict[str, dict[str, str]]]) -> list[str]:
    return sorted(configs["brokerConfigs"]["broker-a"])
