"""`lockstep-broker --brokers N` as real processes: what it serves, how it ends, and what a killed process leads to."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from functools import partial
from pathlib import Path

import pytest
import trustme

from lockstep.client import AdminClient, Message, Producer
from lockstep.order import check_files
from lockstep.remoting.host.manual_clock import HeldPort
from lockstep.remoting.tls.options import TlsOptions
from lockstep.testing.process import BrokerFailed
from tests.commands import TIMEOUT_S, Lockstep
from tests.integration.harness.processes import PATIENT_CLIENT, PATIENT_PRODUCER, Broker, Processes, until
from tests.integration.harness.workload import drained, holders, producing, send_keyed, spread

TOPIC, GROUP, QUEUES, MESSAGES = "orders", "audit", 4, 300
NAMES = ["broker-a", "broker-b", "broker-c"]
CONFIG = {"rebalance_interval_ms": 1000, "persist_consumer_offset_interval_ms": 500}
SMALL_FILES = ("mappedFileSizeCommitLog=16777216", "maxHashSlotNum=1000", "maxIndexNum=4000")
SMALL_FILES_GIVEN = tuple(f"-D{each}" for each in SMALL_FILES)
KEPT = ("--flush", "sync", *SMALL_FILES_GIVEN)
pytestmark = pytest.mark.long
PROGRAM = (sys.executable, "-m", "lockstep.broker", "--port", "0", "--name-server-port", "0")


def pid_of(broker: Broker, name: str) -> int:
    """The process of one broker, the last one that was started."""
    return [int(event["pid"]) for event in broker.events("broker_process_started") if event["process"] == name][-1]


async def names_at(admin: AdminClient) -> list[str]:
    return [data.broker_name for data in await admin.brokers()]


async def known(admin: AdminClient, names: list[str]) -> bool:
    return await names_at(admin) == names


async def forgotten(broker: Broker, admin: AdminClient, left: list[str]) -> None:
    """Kill the last broker and wait until the name server has only those that are left."""
    last = NAMES[len(left)]
    for _ in range(3):  # on a busy machine it may be back before anybody looks
        killed = pid_of(broker, last)
        os.kill(killed, signal.SIGKILL)
        found = await names_at(admin)
        while found != left and (found != [*left, last] or pid_of(broker, last) == killed):
            found = await names_at(admin)
        if found == left:
            return
    raise AssertionError(f"the name server has {found} though {last} was killed")


async def queues_of(admin: AdminClient, topic: str) -> dict[str, int]:
    return {data.broker_name: data.write_queue_nums for data in (await admin.route(topic)).queue_datas}


@pytest.mark.parametrize("mode", ["faithful", "fenced"])
async def test_order_over_three_brokers_one_of_which_is_killed(processes: Processes, mode: str, tmp_path: Path) -> None:
    """Topics are on all, members share all queues, and a killed broker is back with its messages: all in order.

    Faithful locks are gone with their broker. Who comes back first may have its queues until it hears of the other,
    which goes on afterwards (docs/order.md): only fenced locks keep the order of these queues.
    """
    broker = await processes.broker(
        "--brokers", "3", "--data-dir", str(tmp_path / "data"), *KEPT, "--topic", f"{TOPIC}:{QUEUES}",
        "--lock-mode", mode,
    )  # fmt: skip
    fenced = {"fenced": True} if mode == "fenced" else {}
    members = [await processes.consumer(broker, TOPIC, group=GROUP, config=CONFIG, **fenced) for _ in range(2)]
    sent_trace = processes.folder / "producer.trace"
    async with broker.admin() as admin, producing(broker, sent_trace) as producer:
        assert await names_at(admin) == NAMES
        assert await queues_of(admin, TOPIC) == dict.fromkeys(NAMES, QUEUES)
        await until(lambda: spread(admin, GROUP, TOPIC, 3 * QUEUES, members), "an even share of all brokers' queues")
        await send_keyed(producer, TOPIC, range(MESSAGES))
        await until(lambda: drained(admin, GROUP, TOPIC), "all is handled and committed", 20)
        stored = [queue.broker_name for queue in await holders(admin, GROUP)]
        assert sorted(set(stored)) == NAMES
        os.kill(pid_of(broker, "broker-b"), signal.SIGKILL)
        await until(partial(was_started, broker, 4), "it is started again")
        await until(partial(known, admin, NAMES), "it is registered again")
        await until(lambda: drained(admin, GROUP, TOPIC), "its messages and offsets are there")
        await send_keyed(producer, TOPIC, range(MESSAGES, 2 * MESSAGES))
        await until(lambda: spread(admin, GROUP, TOPIC, 3 * QUEUES, members), "an even share again", 30)
        await until(lambda: drained(admin, GROUP, TOPIC), "all is handled and committed", 30)
    for member in members:
        assert await member.stop() == 0
    report = check_files([sent_trace, *(member.trace for member in members)])
    shown = "\n".join(report.lines())
    assert (report.sent, report.handled, report.lost) == (2 * MESSAGES, 2 * MESSAGES, 0), shown
    doubtful = {record["broker"] for violation in report.violations for record in violation.evidence}
    assert doubtful <= ({"broker-b"} if mode == "faithful" else set()), shown
    (died,) = broker.events("broker_process_died")
    assert (died["process"], died["status"], died["restart_in_ms"]) == ("broker-b", -signal.SIGKILL, 200)
    assert await broker.stop() == 0
    assert sorted(event["process"] for event in broker.events("shutting_down") if "process" in event) == NAMES


@pytest.mark.smoke
async def test_topics_are_on_all_brokers(processes: Processes) -> None:
    """Those of an administrator, and those that a send creates, in the route all at once and again after a crash."""
    broker = await processes.broker("--brokers", "3")
    async with (
        broker.admin() as admin,
        Producer("shop", name_server=broker.name_server, config=PATIENT_PRODUCER) as producer,
    ):
        await admin.create_topic("made", 2)
        assert await queues_of(admin, "made") == dict.fromkeys(NAMES, 2)
        first = await producer.send(Message("sent", b"1"), sharding_key="1")
        await until(lambda: queues_of_or_none(admin, "sent"), "the topic of a send has a route")
        assert await queues_of(admin, "sent") == dict.fromkeys(NAMES, QUEUES)
        again = await producer.send(Message("sent", b"2"), sharding_key="1")
        assert again.queue == first.queue
        spread_to = {(await producer.send(Message("made", b"%d" % i))).queue.broker_name for i in range(6)}
        assert sorted(spread_to) == NAMES
        await admin.delete_topic("made")
        await forgotten(broker, admin, NAMES[:2])
        await until(partial(known, admin, NAMES), "it is back")
        assert await queues_of(admin, "sent") == dict.fromkeys(NAMES, QUEUES)
        assert "made" not in await admin.topics()


async def queues_of_or_none(admin: AdminClient, topic: str) -> dict[str, int] | None:
    return await queues_of(admin, topic) if topic in await admin.topics() else None


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
async def test_all_end_with_the_command(processes: Processes, number: signal.Signals, status: int) -> None:
    """Each broker shuts down in order, and the exit status is that of a single broker."""
    broker = await processes.broker("--brokers", "2")
    assert broker.stdout().startswith("listening broker=127.0.0.1:")
    assert broker.stdout().count("\n") == 1
    assert broker.address.count(",") == 1
    assert await broker.stop(number) == status
    assert [event["signal"] for event in broker.events("shutting_down") if "process" not in event] == [number.name]
    ended = broker.events("broker_process_ended")
    assert sorted((event["process"], event["status"]) for event in ended) == [("broker-a", 0), ("broker-b", 0)]


async def test_brokers_end_when_the_command_is_killed(processes: Processes) -> None:
    """Their stdin closes, and they shut down as always: a store in files has no crash."""
    broker = await processes.broker("--brokers", "2")
    broker.kill()

    def both_ended() -> bool:
        shut = [event for event in broker.events("shutting_down") if event["reason"] == "stdin closed"]
        return sorted(event["process"] for event in shut) == NAMES[:2]

    await until(both_ended, "both brokers shut down")
    for address in broker.address.split(","):
        await until(partial(is_closed, address), f"{address} is closed")


def is_closed(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 5).close()
    except ConnectionRefusedError:
        return True
    return False


def test_they_end_with_stdin() -> None:
    """`--end-with-stdin` is of the whole command."""
    command = [*PROGRAM, "--brokers", "2", "--end-with-stdin"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stdout.readline().startswith(b"listening broker=")
        running.stdin.close()
        assert running.wait(TIMEOUT_S) == 0


async def test_a_broker_that_does_not_end_is_killed(processes: Processes, tmp_path: Path) -> None:
    """The log says who is waited for and that it was killed, the status too; what was acknowledged is there again."""
    data = ("--brokers", "2", "--data-dir", str(tmp_path / "data"), *SMALL_FILES_GIVEN, "--topic", f"{TOPIC}:{QUEUES}")
    broker = await processes.broker(*data)
    async with Producer("shop", name_server=broker.name_server, config=PATIENT_PRODUCER) as producer:
        for number in range(20):
            await producer.send(Message(TOPIC, b"%d" % number))
    await until(partial(was_started, broker, 2), "both processes are logged")
    pid = pid_of(broker, "broker-b")
    os.kill(pid, signal.SIGSTOP)
    assert await broker.stop() == 4
    (awaited,), (killed,) = broker.events("broker_process_awaited"), broker.events("broker_process_killed")
    assert (awaited["process"], awaited["pid"], awaited["killed_in_ms"]) == ("broker-b", pid, 28_000)
    assert (killed["process"], killed["pid"], killed["waited_ms"]) == ("broker-b", pid, 30_000)
    assert "lockstep-broker: broker-b did not end within 30 s and was killed\n" in broker.stderr()
    again = await processes.broker(*data)
    async with again.admin() as admin:
        assert sum([await admin.max_offset(queue) for queue in (await admin.route(TOPIC)).readable_queues(TOPIC)]) == 20
    assert await again.stop() == 0


async def test_a_port_that_is_taken_while_its_broker_starts_again(processes: Processes) -> None:
    """A system gives free ports to outgoing connections too. The log says what is wrong, until the port is free."""
    broker = await processes.broker("--brokers", "2")
    port = int(broker.address.split(",")[1].rpartition(":")[2])
    await until(partial(was_started, broker, 2), "both processes are logged")
    os.kill(broker.pid, signal.SIGSTOP)  # it does not see the end before the port is taken
    os.kill(pid_of(broker, "broker-b"), signal.SIGKILL)
    taken = await until(partial(held, port), "the port is taken")
    os.kill(broker.pid, signal.SIGCONT)
    await until(lambda: len(broker.events("broker_port_taken")) > 1, "it is tried again")
    taken.close()
    assert {(event["process"], event["port"]) for event in broker.events("broker_port_taken")} == {("broker-b", port)}
    async with broker.admin() as admin:
        await until(partial(known, admin, NAMES[:2]), "it is back")
        addresses = [data.master_addr for data in await admin.brokers()]
    assert ",".join(filter(None, addresses)) == broker.address
    assert await broker.stop() == 0


def held(port: int) -> socket.socket | None:
    """None while the killed process still has it."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError:
        return None


def was_started(broker: Broker, times: int) -> bool:
    return len(broker.events("broker_process_started")) == times


def test_a_broker_that_cannot_start_ends_the_command() -> None:
    """The port of the second one is in use: its own line says so, and nothing is left running."""
    with contextlib.ExitStack() as ports:
        port = first_of_two(ports)
        command = [*PROGRAM, "--brokers", "2", "--port", str(port)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    lines = [line for line in ended.stderr.splitlines() if line.startswith("lockstep-broker: ")]
    assert lines[0].startswith(f"lockstep-broker: broker-b: port {port + 10} on 127.0.0.1 is in use")
    assert lines[-1] == "lockstep-broker: broker-b did not start: it ended with status 3"


def first_of_two(ports: contextlib.ExitStack) -> int:
    """A port that is free for the first broker, while that of the second one is in use."""
    while True:
        taken = ports.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = int(taken.getsockname()[1]) - 10
        with contextlib.suppress(OSError):
            held = HeldPort("127.0.0.1", port)
            ports.callback(held.close)
            return port


async def test_one_broker_becomes_two_and_never_fewer(processes: Processes, tmp_path: Path) -> None:
    """The store of the one stays where it is; without the second one the folder is not opened."""
    data = ("--data-dir", str(tmp_path / "data"), *KEPT)
    one = await processes.broker(*data, "--topic", f"{TOPIC}:{QUEUES}")
    async with Producer("shop", name_server=one.name_server, config=PATIENT_PRODUCER) as producer:
        await producer.send(Message(TOPIC, b"first"))
    assert await one.stop() == 0
    two = await processes.broker(*data, "--brokers", "2")
    async with two.admin() as admin:
        assert await queues_of(admin, TOPIC) == {"broker-a": QUEUES}
        assert sum([await admin.max_offset(queue) for queue in (await admin.route(TOPIC)).readable_queues(TOPIC)]) == 1
        refused = Lockstep(two.name_server).run("lockstep", "topic", "create", TOPIC, "--queues", str(QUEUES))
        assert refused.status == 1
        assert f"topic '{TOPIC}' is on broker-a alone" in refused.err
        made = Lockstep(two.name_server).run("lockstep", "topic", "create", TOPIC, "--queues", str(QUEUES), "--force")
        assert made.status == 0, made.err
        assert await queues_of(admin, TOPIC) == dict.fromkeys(NAMES[:2], QUEUES)
    assert await two.stop() == 0
    for fewer in ((), ("--brokers", "1")):
        with pytest.raises(BrokerFailed, match="has the store of broker-b too"):
            await processes.broker(*data, *fewer)


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


async def test_tools_see_all_brokers(processes: Processes) -> None:
    """`lockstep status` and `doctor`, the locks, and the metrics of each broker."""
    broker = await processes.broker("--brokers", "2", "--topic", f"{TOPIC}:{QUEUES}", "--metrics-port", "0")
    urls = broker.addresses.metrics.split(",")
    for url, name in zip(urls, NAMES[:2], strict=True):
        assert f'node_id="{name}"' in await asyncio.to_thread(fetched, url)
    member = await processes.consumer(broker, TOPIC, group=GROUP, config=CONFIG)
    async with broker.admin() as admin:
        await until(lambda: spread(admin, GROUP, TOPIC, 2 * QUEUES, [member]), "every queue is held")
    commands = Lockstep(broker.name_server)
    status = commands.run("lockstep", "status")
    assert status.status == 0, status.err
    assert all(name in status.out for name in NAMES[:2])
    looks = [commands.run("lockstep", "doctor")]
    while looks[-1].status and len(looks) < 10:  # a renewal may be late on a busy machine
        looks.append(commands.run("lockstep", "doctor"))
    assert looks[-1].status == 0, looks
    locks = commands.run("lockstep", "lock", "list", "-o", "json")
    assert sorted({row["broker"] for row in locks.rows}) == NAMES[:2]
    page = processes.folder / "order.html"
    assert commands.run("lockstep", "console", "--snapshot", str(page)).status == 0
    assert all(name in page.read_text(encoding="utf-8") for name in NAMES[:2])
    assert await member.stop() == 0


RULES = """
accounts:
- accessKey: administrator
  secretKey: a-long-secret-1
  admin: true
"""


async def test_acl_and_tls_hold_for_all(processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With strict checks and TLS alone, brokers register and spread topics; nobody else comes in."""
    authority, files = trustme.CA(), {name: str(tmp_path / f"{name}.pem") for name in ("ca", "server")}
    authority.cert_pem.write_to_path(files["ca"])
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(files["server"])
    rules = tmp_path / "plain_acl.yml"
    rules.write_text(RULES)
    options = ("--acl", str(rules), "--acl-checks", "strict", "--tls", "enforcing", "--tls-cert", files["server"])
    trust = ("-D", f"tls.client.trustCertPath={files['ca']}")
    with pytest.raises(BrokerFailed, match="cannot register with the name server at 127"):
        await processes.broker("--brokers", "2", *options, *trust)  # without an account of its own
    monkeypatch.setenv("LOCKSTEP_ACCESS_KEY", "administrator")
    monkeypatch.setenv("LOCKSTEP_SECRET_KEY", "a-long-secret-1")
    broker = await processes.broker("--brokers", "2", *options, *trust)
    tls = TlsOptions(ca=files["ca"])
    async with (
        AdminClient(name_server=broker.name_server, config=PATIENT_CLIENT, tls=tls) as admin,
        Producer("shop", name_server=broker.name_server, config=PATIENT_PRODUCER, tls=tls) as producer,
    ):
        assert await names_at(admin) == NAMES[:2]
        await producer.send(Message("sent", b"1"))
        await until(lambda: queues_of_or_none(admin, "sent"), "the topic of a send has a route")
        assert await queues_of(admin, "sent") == dict.fromkeys(NAMES[:2], QUEUES)
    assert await broker.stop() == 0
