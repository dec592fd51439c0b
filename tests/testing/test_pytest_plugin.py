"""The pytest plugin in projects of other people: each test here is a run of pytest in a folder of its own."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import is_readable
from tests.testing.plugin_project import Project

pytestmark = pytest.mark.long  # each test is a run of pytest


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty project."""
    return Project(tmp_path)


@pytest.mark.smoke
def test_importing_the_plugin_imports_nothing_heavy() -> None:
    """Every run of pytest imports it, used or not: it brings no asyncio, no broker, nothing of anybody else."""
    look = "before = set(sys.modules); import lockstep.testing.plugin; print(*set(sys.modules) - before)"
    command = [sys.executable, "-c", f"import pytest, sys; {look}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    client = {"lockstep", "lockstep.testing", "lockstep.testing.plugin"}
    ours = client | {"lockstep.remoting", "lockstep.remoting.lazy"}
    assert set(done.stdout.split()) == ours


def test_a_run_that_does_not_want_a_broker_starts_none(project: Project) -> None:
    """The plugin is loaded, and none of what it needs later is."""
    project.write("test_it.py", """
        import sys

        def test_it(pytestconfig):
            assert pytestconfig.pluginmanager.hasplugin("lockstep")
            assert "lockstep.testing.session" not in sys.modules
    """)  # fmt: skip
    assert project.run().counts() == {"passed": 1}


def test_it_works_beside_a_client_and_a_broker_of_the_projects_own(project: Project) -> None:
    """Nothing of the project is imported by us, whatever it is called, and its own imports find its own."""
    project.write("client.py", "NAME = 'the client of the project'\n")
    for package in ("broker", "remoting", "protocol", "structlog", "lockstep"):
        project.write(f"{package}/__init__.py", "" if package == "broker" else f"raise RuntimeError({package!r})\n")
    project.write("broker/options.py", "NAME = 'the broker of the project'\n")
    (project.folder / "lockstep/__init__.py").unlink()  # a folder without modules
    project.write("test_it.py", """
        import socket
        import broker.options, client

        def test_it(lockstep_broker):
            assert client.NAME == "the client of the project"
            assert broker.options.NAME == "the broker of the project"
            host, port = lockstep_broker.address.split(":")
            socket.create_connection((host, int(port))).close()
            assert lockstep_broker.requests() == []
    """)  # fmt: skip
    report = project.run()
    assert report.counts() == {"passed": 1}, report.text


@pytest.mark.smoke
def test_one_broker_a_session_and_a_topic_a_test(project: Project) -> None:
    """Every test has another topic and group, of the same broker, and NAMESRV_ADDR while it runs."""
    project.write("test_it.py", """
        import os
        import pytest

        seen = []

        @pytest.mark.parametrize("what", ["plain", "with spaces / and more", "\\u00fcber", "x" * 300])
        def test_it(lockstep_broker, what):
            assert os.environ["NAMESRV_ADDR"] == lockstep_broker.name_server
            seen.append(lockstep_broker)

        def test_after():
            assert os.environ["NAMESRV_ADDR"] == "10.0.0.1:1"
            assert len({broker.topic for broker in seen}) == len({broker.group for broker in seen}) == 4
            assert len({broker.address for broker in seen}) == 1
    """)  # fmt: skip
    report = project.run("-W", "error", environment={"NAMESRV_ADDR": "10.0.0.1:1"})
    assert report.counts() == {"passed": 5}, report.text


def test_what_a_test_breaks_is_whole_for_the_next(project: Project) -> None:
    """Errors that wait, a slow network and a closed port end with the test that asked for them."""
    project.write("test_it.py", """
        import socket
        import time
        import pytest

        def connect(address):
            host, port = address.split(":")
            return socket.create_connection((host, int(port)), 5)

        def test_breaks(lockstep_broker):
            lockstep_broker.push_error("HEART_BEAT", times=3)
            lockstep_broker.set_rtt(5000)
            lockstep_broker.down()
            for address in (lockstep_broker.address, lockstep_broker.name_server):
                with pytest.raises(ConnectionRefusedError):
                    connect(address)

        def test_whole(lockstep_broker):
            connect(lockstep_broker.address).close()
            connect(lockstep_broker.name_server).close()
            status = lockstep_broker._control.call("status")
            assert (status["errorsWaiting"], status["rttMs"]) == (0, 0)
    """)  # fmt: skip
    report = project.run()
    assert report.counts() == {"passed": 2}, report.text


@pytest.mark.parametrize("plugin", ["plain", "pytest-asyncio", "anyio"])
def test_it_serves_sync_and_async_tests(project: Project, plugin: str) -> None:
    """The fixture is a plain one: whoever runs the test's coroutine may use it, on any loop."""
    if plugin == "anyio":
        pytest.importorskip("anyio")
    heads = {
        "plain": "def test_it(lockstep_broker):\n    asyncio.run(story(lockstep_broker))",
        "pytest-asyncio": "@pytest.mark.asyncio\nasync def test_it(lockstep_broker):\n    await story(lockstep_broker)",
        "anyio": "@pytest.mark.anyio\nasync def test_it(lockstep_broker, anyio_backend_name):\n"
        "    await story(lockstep_broker)",
    }
    project.write("conftest.py", "import pytest\n\n@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n")
    project.write("test_it.py", "import asyncio\nimport pytest\nfrom lockstep.client import Message, Producer\n"
        "async def story(broker):\n"
        "    async with Producer(broker.group) as producer:\n"
        "        await producer.send(Message(broker.topic, b'hello', sharding_key='k'))\n"
        "    (sent,) = broker.requests('SEND_MESSAGE_V2')\n"
        "    assert (sent.body_bytes, sent.header['topic']) == (5, broker.topic)\n"
        f"{heads[plugin]}\n")  # fmt: skip
    report = project.run()
    assert report.counts() == {"passed": 1}, report.text


def test_a_worker_of_xdist_has_a_broker_of_its_own(project: Project) -> None:
    """Four tests on two workers meet two brokers, and none meets a port of another's."""
    pytest.importorskip("xdist")
    project.write("test_it.py", """
        import pytest

        @pytest.mark.parametrize("number", range(4))
        def test_it(lockstep_broker, number, worker_id):
            print("SEEN", worker_id, lockstep_broker.address)
    """)  # fmt: skip
    report = project.run("-n", "2")
    assert report.counts() == {"passed": 4}, report.text
    seen = set(re.findall(r"^SEEN (\w+) (\S+)$", report.text, re.MULTILINE))
    assert len({worker for worker, _ in seen}) == len({address for _, address in seen}) == len(seen) == 2


def test_options_come_from_the_ini_file_and_the_command_line(project: Project) -> None:
    """Both reach the broker, and the command line has the last word."""
    project.write("pytest.ini", """
        [pytest]
        lockstep_broker_args = --broker-name "from-ini" --lock-live-ms 1000
    """)  # fmt: skip
    project.write("test_it.py", """
        def test_it(lockstep_broker):
            broker = lockstep_broker._control.call("status")
            assert broker["brokerName"] == "from-command"
            assert broker["lockMaxLiveTimeMs"] == 1000
    """)  # fmt: skip
    report = project.run("--lockstep-broker-args=--broker-name from-command")
    assert report.counts() == {"passed": 1}, report.text


def test_clients_of_rocketmq_5_have_an_endpoint(project: Project) -> None:
    """On a free port, that a fault closes too; options may leave it out."""
    pytest.importorskip("h2")
    project.write("test_it.py", """
        import socket
        import pytest

        def connect(address):
            host, port = address.split(":")
            return socket.create_connection((host, int(port)), 5)

        def test_it(lockstep_broker):
            connect(lockstep_broker.endpoint).close()
            assert lockstep_broker.requests("SendMessage") == []
            lockstep_broker.push_error("SendMessage", "TOO_MANY_REQUESTS")
            lockstep_broker.create_group("fifo", fifo=True)
            lockstep_broker.down()
            with pytest.raises(ConnectionRefusedError):
                connect(lockstep_broker.endpoint)
            lockstep_broker.up()
            connect(lockstep_broker.endpoint).close()
    """)  # fmt: skip
    assert project.run("--lockstep-broker-args=--broker-name grpc-1").counts() == {"passed": 1}
    project.write("test_it.py", """
        import pytest

        def test_it(lockstep_broker):
            with pytest.raises(ValueError, match="no port for gRPC"):
                lockstep_broker.endpoint
    """)  # fmt: skip
    assert project.run("--lockstep-broker-args=--grpc-port none").counts() == {"passed": 1}


def test_calls_that_are_interrupted_or_made_at_once_get_their_own_answers(project: Project) -> None:
    """As a timeout interrupts them, in the middle of one that takes long; and from several threads."""
    project.write("test_it.py", """
        import signal
        import threading
        import pytest

        class Interrupted(BaseException):
            pass

        def interrupt(*_):
            raise Interrupted

        def test_interrupted(lockstep_broker):
            before = signal.signal(signal.SIGALRM, interrupt)
            with pytest.raises(Interrupted):
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                lockstep_broker.advance(2 * 24 * 3600)  # the next call waits for its end, 30 s at most
            signal.signal(signal.SIGALRM, before)
            assert lockstep_broker.requests() == []
            assert lockstep_broker.locks() == []

        def test_at_once(lockstep_broker):
            seen = []
            def ask():
                for _ in range(50):
                    seen.append((lockstep_broker.now_ms() > 0, lockstep_broker.locks()))
            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert seen == [(True, [])] * 200
    """)  # fmt: skip
    report = project.run()
    assert report.counts() == {"passed": 2}, report.text


# Failures ------------------------------------------------------------------------------------------------------

TWO_TESTS = """
    def test_first(lockstep_broker):
        pass

    def test_second(lockstep_broker):
        pass
"""


@pytest.mark.parametrize("why", ["a port that is taken", "an option that is none", "a broker without name server"])
def test_a_failed_start_says_why_once(project: Project, why: str) -> None:
    """In the broker's own words for the first test; the next ones only point there. Nobody waits."""
    project.write("test_it.py", TWO_TESTS)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments, words = {
            "a port that is taken": (f"--port {port}", f"port {port} on 127.0.0.1 is in use"),
            "an option that is none": ("--nonsense", "unrecognized arguments: --nonsense"),
            "a broker without name server": ("--role name-server", "a broker and a name server in one process"),
        }[why]
        report = project.run(f"--lockstep-broker-args={arguments}")
    assert report.status == 1
    assert report.counts() == {"errors": 2}, report.text
    assert report.text.count(words) == 1
    assert "there is no broker; test_it.py::test_first says why" in report.text


def test_a_broker_that_dies_is_told_once(project: Project) -> None:
    """The test that meets it says how the broker ended, the next one that there is none."""
    project.write("test_it.py", """
        import os, signal

        def test_dies(lockstep_broker, lockstep_session):
            os.kill(lockstep_session.process_id, signal.SIGKILL)
            lockstep_broker.requests()

        def test_second(lockstep_broker):
            pass
    """)  # fmt: skip
    report = project.run()
    assert report.counts() == {"failed": 1, "errors": 2}, report.text
    assert "BrokerFailed: the broker ended with status -9" in report.text
    assert "there is no broker; test_it.py::test_dies says why" in report.text


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_broker_ends_with_pytest(project: Project, number: signal.Signals) -> None:
    """However pytest ends: nobody listens any more, soon after."""
    project.write("test_it.py", """
        import sys, time

        def test_waits(lockstep_broker, lockstep_session, capfd):
            with capfd.disabled():
                print("PID", lockstep_session.process_id, flush=True)
            while True:
                lockstep_broker.requests()
    """)  # fmt: skip
    command = project.command("-q")
    with subprocess.Popen(command, cwd=project.folder, env=project.environment, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        try:
            line = next(line for line in iter(run.stdout.readline, b"") if b"PID" in line)
            process_id = int(line.split()[-1])
            watched = os.pidfd_open(process_id)
            run.send_signal(number)
            assert wait_for(watched), "the broker outlived pytest"
        finally:
            run.kill()


def wait_for(process: int) -> bool:
    """Whether the process has ended soon, on a busy machine too."""
    try:
        return is_readable(process, 100)
    finally:
        os.close(process)
