"""`lockstep-sim`, `run` and `list`: what a newcomer meets first."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lockstep.order import Verdict
from lockstep.order.judge.rules import check_files
from lockstep.remoting.settings import SettingError
from lockstep.simulation.commands.app import app
from lockstep.simulation.lab.faults.table import FAULTS
from lockstep.simulation.lab.user.story import experiment
from lockstep.simulation.lab.user.story_cluster import StoryCluster
from tests.rows import by_row

SMALL = ("--consumers", "2", "--queues", "2", "--rate", "1", "--for", "1m")


def call(*words: str) -> tuple[int, str]:
    """Exit status and output."""
    result = CliRunner().invoke(app, words)
    return result.exit_code, result.output


def test_without_arguments_it_shows_a_takeover() -> None:
    """What is there, what happens, what it means, what to try next."""
    status, output = call()
    assert status == 0
    for text in (
        "Three consumers, c1 to c3,",
        "  0:30.0  FAULT  kill c1.",
        "c2 asks for queues 0, 1 and 2, and is refused: c1 holds the lock.",
        "The lock of c1 has run out: c2 takes over queues 0, 1 and 2",
        "1,800 messages were sent, 1,800 handled",
        "Nothing is wrong",
        "What this shows: a dead owner cannot give its locks back.",
        "Try next:",
    ):
        assert text in output
    assert max(map(len, output.splitlines())) <= 120


def test_a_process_that_starts_again_finds_the_lock_of_the_one_before() -> None:
    """It is another client: the sentences do not say that c1 is refused because of itself."""
    line = "run takeover --consumers 2 --queues 2 --rate 2 --kill c1@20s+10s --for 100s"
    _, output = call(*line.split())
    assert "kill c1. The process is killed.\n" in output
    assert "c1 asks for queue 0, and is refused: an earlier process of c1 holds the lock." in output


def test_a_handover_is_told_with_the_time_that_it_took() -> None:
    """The owner of a fenced lock that is cut off handles what it has until the next owner begins."""
    _, output = call("run", "takeover", "--partition", "c1-broker@30s+90s", "--lock-mode", "fenced")
    told = r"Queues changed their owner 3 times; the longest handover took (\d+) ms \(orders@broker:0\)\."
    found = re.search(told, output)
    assert found is not None
    assert int(found[1]) < 50  # some requests; a request more before it draws other latencies
    grants = [line[17:] for line in output.splitlines() if " locks queue" in line or " takes over queue" in line]
    assert grants == [
        "c1 locks queues 0 and 1.",
        "c2 locks queue 1.",
        "The lock of c1 has run out: c2 takes over queue 0, 60.0 s after the last renewal.",
        "c1 locks queue 0.",
    ]


def test_a_fault_is_told_with_its_amount() -> None:
    """What is later "by so much" is later by what the command said."""
    _, output = call("run", "takeover", "--slow", "c1-broker@1s+1s=250ms", "--for", "3s", "--rate", "1")
    assert "FAULT  slow c1 - broker = 250ms. Every byte" in output


def test_messages_that_a_restart_forgot_are_told() -> None:
    """A broker that keeps its messages in memory has none after a restart; they count as sent, not as handled."""
    _, output = call("run", "takeover", "--restart-broker", "3s+2s", "--for", "15s", "--rate", "1")
    assert "A restart emptied the broker's memory: 2 messages were gone before they were handled" in output
    assert "no other message is lost" in output


def test_without_messages_nothing_is_claimed_about_them() -> None:
    """No message was handled in order, because there was none."""
    _, output = call("run", "takeover", "--rate", "0", "--for", "5s", "--kill", "c1@1s")
    assert "Nothing is wrong, but there was no message to show it." in output


def test_what_it_says_to_try_next_does_what_it_says(tmp_path: Path) -> None:
    """Fenced locks are free early, and a stalled owner comes back beside the next one."""
    _, output = call()
    commands = [line.split("  ")[1].split()[1:] for line in output.splitlines() if line.startswith("  lockstep-sim")]
    fenced, stalled, drawn, timeline, own, listed = commands
    status, output = call(*fenced)
    assert status == 0
    assert float(output.partition("handover took ")[2].partition(" s")[0]) < 10
    status, output = call(*stalled)
    assert status == 1
    assert "WRONG overlap: c1 " in output
    assert call(*drawn)[0] == 0
    page = tmp_path / "zombie.html"
    assert call(*timeline[:-1], str(page))[0] == 0
    assert "</html>" in page.read_text(encoding="utf-8")
    assert own == ["run", "shop.py:consumer"]
    assert call(*listed)[0] == 0


def test_the_list_has_all_that_there_is() -> None:
    """Stories, faults with an example each, and hosts."""
    _, output = call("list")
    for text in ("takeover", "worlds", "FILE.py:NAME", *(f"--{name}" for name in FAULTS), "c1-broker"):
        assert text in output


def test_every_fault_is_an_option() -> None:
    """Given by name, several times, together."""
    status, output = call(
        "run", "takeover", *SMALL, "--stall", "c1@5s+2s", "--stall", "c2@9s+1s", "--cut", "c1-broker@20s"
    )
    assert status == 0, output
    assert [line.split("  ")[-1][:8] for line in output.splitlines() if "FAULT" in line][::2] == [
        "stall c1",
        "stall c2",
        "cut c1 -",
    ]


@by_row(
    "words, why",
    [
        (("takeove",), "no experiment is named 'takeove'; did you mean takeover? `lockstep-sim list` lists all"),
        (("world/links",), "did you mean worlds/links"),
        (("museum/comit-leak",), "the museum has no exhibit 'comit-leak'; did you mean count-leak"),
        (("takeover", "--kill", "c9@30s"), "kill c9@30s: no host is named 'c9'; there are broker, producer, c1, c2"),
        (("takeover", "--kill", "c1@5m"), "kill c1@5m: the run ends after 3m"),
        (("takeover", "--drift", "c1@30s=2%"), "it needs a duration (an example: drift c1@30s+60s=-2%)"),
        (("takeover", "--for", "soon"), "'soon' is no duration; write it as 500ms, 30s, 1m30s or 2h"),
        (("takeover", "--lock-mode", "open"), "lock mode 'open' is not allowed; use faithful, fenced or fifo"),
        (("takeover", "--store", "tape"), "store 'tape' is not allowed; use memory or async or sync"),
        (("worlds", "--rate", "3"), "worlds draws everything from its seed"),
        (("worlds", "--consumer", "pull_batch_size=3"), "worlds draws everything from its seed"),
        (("takeover", "--consumer", "pull_batch_size"), "--consumer pull_batch_size: write NAME=VALUE"),
        (("takeover", "--consumer", "pull_batch_size=9999"), "--consumer: pull_batch_size must be from 1 to 1024"),
        (("takeover", "--for", "0s"), "a run of 0s shows nothing"),
        (("takeover", "--consumer", "pull_batch_size=a"), "'pull_batch_size' must be a whole number, not 'a'"),
        (
            ("takeover", "--broker", "lock_max_live_ms=1"),
            "no such setting; did you mean lock_max_live_time_ms",
        ),
        (("takeover", "--broker", "x=1"), "a broker has no such setting; docs/settings.md lists all"),
        (("takeover", "--broker", "lock_mode=fenced"), "--broker lock_mode=fenced: use --lock-mode"),
        (("takeover", "--broker", "brokerName=b"), "--broker brokerName=b: the simulator sets it"),
        (("takeover", "--broker", "scan_interval_ms=200000"), "must be below channel_expired_timeout_ms"),
    ],
)
def test_a_wrong_call_is_one_clear_line(words: tuple[str, ...], why: str) -> None:
    """With exit status 2."""
    status, output = call("run", *words)
    assert (status, len(output.splitlines())) == (2, 1)
    assert why in output


@pytest.mark.parametrize("words", ["sweep {} --seeds 1 --jobs 1", "replay {} --seed 1", "timeline {} --seed 1"])
def test_a_mode_without_the_strategy_is_refused_before_a_run(tmp_path: Path, words: str) -> None:
    """Also when it is one of both."""
    path = tmp_path / "shop.py"
    path.write_text(
        "from lockstep.simulation import experiment\n"
        '@experiment(strategy="STICKY", life="10s")\n'
        "async def sticky(cluster):\n"
        "    await cluster.start()\n",
        encoding="utf-8",
    )
    status, output = call(*words.format(f"{path}:sticky").split(), "--lock-mode", "both")
    assert status == 2
    told = " ".join(output.replace("│", "").split())
    assert "--lock-mode both: 'faithful' has no strategy STICKY; use fenced" in told


def test_consumers_and_brokers_have_settings_by_their_names() -> None:
    """Under our names and RocketMQ's: a lock of 30 s is free after 30 s, and a call gets four messages."""
    settings = ("--broker", "lock_max_live_time_ms=30000", "--consumer", "consumeMessageBatchMaxSize=4")
    status, output = call("run", "takeover", *SMALL, "--for", "2m", "--kill", "c1@30s", *settings)
    assert status == 0, output
    assert "consumer settings consume_message_batch_max_size=4, broker settings lock_max_live_time_ms=30000" in output
    takeover = next(line for line in output.splitlines() if "takes over" in line)
    assert 30 <= float(takeover.partition(", ")[2].partition(" s")[0]) < 50


def test_settings_are_added_to_those_of_a_story() -> None:
    """And read on their background: what they contradict is refused."""

    @experiment(consumers=1, consumer={"pull_batch_size": 4}, broker={"lock_delay_ms": 1})
    async def story(cluster: StoryCluster) -> None:
        await cluster.start()

    changed = story.with_settings(consumer=["pull_threshold_for_queue=9"], broker=["lock_delay_ms=2"])
    assert changed.setup.consumer == {"pull_batch_size": 4, "pull_threshold_for_queue": 9}
    assert changed.setup.broker == {"lock_delay_ms": 2}
    busy = experiment(broker={"channel_expired_timeout_ms": 5000, "scan_interval_ms": 1000})(story.body)
    with pytest.raises(SettingError, match="scan_interval_ms: must be below"):
        busy.with_settings(broker=["scan_interval_ms=6000"])


def test_an_application_with_its_own_consumers_has_its_own_settings(tmp_path: Path) -> None:
    """What would have no effect is refused."""
    path = tmp_path / "shop.py"
    path.write_text(
        "from lockstep.client import PushConsumer\n"
        "def service(**client):\n"
        "    made = PushConsumer('billing', listener=lambda messages, context: None, **client)\n"
        "    made.subscribe('orders')\n"
        "    return made\n",
        encoding="utf-8",
    )
    status, output = call("run", f"{path}:service", *SMALL, "--for", "10s", "--consumer", "pull_batch_size=8")
    assert status == 1
    assert "ERROR AppError: the application makes its own PushConsumer: give it the settings" in output


def test_the_trace_is_one_that_the_judge_reads(tmp_path: Path) -> None:
    """All hosts' records in one file, with the verdict of the run."""
    path = tmp_path / "trace.jsonl"
    status, output = call("run", "takeover", *SMALL, "--kill", "c1@20s", "--store", "sync", "--trace", str(path))
    assert status == 0, output
    assert f"lockstep trace check {path}" in output
    assert check_files([path]).verdict is Verdict.IN_ORDER


def test_a_trace_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    """Before the run, with exit status 2."""
    status, output = call("run", "takeover", *SMALL, "--for", "10s", "--trace", str(tmp_path))
    assert status == 2
    assert f"--trace: cannot write {tmp_path}: Is a directory" in output
    assert "takeover" not in output
