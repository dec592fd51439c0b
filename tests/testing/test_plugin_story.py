"""What the plugin is for: stories with consumers, a clock that jumps, and a network that fails."""

from pathlib import Path

import pytest

from tests.testing.plugin_project import Project

pytestmark = pytest.mark.long  # each test is a run of pytest

CONSUMER = '''
"""A consumer as a process: it says what it handles, until it is ended."""

import asyncio
import sys

from lockstep.client import ConsumeFromWhere, ConsumerConfig, PushConsumer


async def handle(messages, context):
    for message in messages:
        print(context.message_queue.queue_id, message.body.decode(), flush=True)


async def main(topic, group):
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    config = ConsumerConfig(rebalance_interval_ms=200, consume_from_where=first)
    consumer = PushConsumer(group, listener=handle, config=config)
    consumer.subscribe(topic)
    async with consumer:
        await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
'''

KILLED_OWNER = """
    import asyncio
    import subprocess
    import sys
    import time

    from lockstep.client import Message, Producer


    def start(broker):
        command = [sys.executable, "-P", "consumer.py", broker.topic, broker.group]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # it finds the broker by NAMESRV_ADDR


    def owners(broker):
        return {row.client_id for row in broker.locks() if row.topic == broker.topic and not row.expired}


    def wait_until(true):
        deadline = time.monotonic() + 100
        while not true():
            assert time.monotonic() < deadline
            time.sleep(0.02)


    async def send(broker, *bodies):
        async with Producer("producer") as producer:
            for body in bodies:
                await producer.send(Message(broker.topic, body, sharding_key="one"))


    def test_a_killed_owners_lock_expires_when_the_clock_is_moved(lockstep_broker):
        with start(lockstep_broker) as first, start(lockstep_broker) as second:
            try:
                wait_until(lambda: len(owners(lockstep_broker)) == 2)
                first.kill()
                first.wait()
                killed = {row.client_id for row in lockstep_broker.locks() if f"@{first.pid}#" in row.client_id}
                assert len(killed) == 1
                assert killed < owners(lockstep_broker)
                lockstep_broker.advance(61)
                assert not killed & owners(lockstep_broker)
                wait_until(lambda: len(lockstep_broker.locks()) == 4 + 1 and len(owners(lockstep_broker)) == 1)
                asyncio.run(send(lockstep_broker, b"created", b"paid"))
                lines = [second.stdout.readline().split()[1] for _ in range(2)]
                assert lines == ["created", "paid"]
            finally:
                second.kill()
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty project."""
    return Project(tmp_path)


def test_a_killed_owners_locks_move_when_the_clock_does(project: Project) -> None:
    """Two consumers, one killed: 61 s later by the broker's clock, at once by the wall's, the other has all queues."""
    project.write("consumer.py", CONSUMER)
    project.write("test_it.py", KILLED_OWNER)
    report = project.run()
    assert report.counts() == {"passed": 1}, report.text


def test_a_lost_answer_makes_a_duplicate(project: Project) -> None:
    """A send that is carried out and whose connection then closes is in doubt: a repeat of it is stored twice."""
    project.write("test_it.py", """
        import asyncio
        import pytest
        from lockstep.client import Message, Producer, SendError

        async def story(broker):
            async with Producer("p") as producer:
                broker.push_error(("SEND_MESSAGE", "SEND_MESSAGE_V2"), drop_connection=True, execute_first=True)
                message = Message(broker.topic, b"hello", sharding_key="k")
                with pytest.raises(SendError):
                    await producer.send(message)
                assert (await producer.send(message)).queue_offset == 1

        def test_it(lockstep_broker):
            asyncio.run(story(lockstep_broker))
            assert len(lockstep_broker.requests("SEND_MESSAGE_V2")) == 2
    """)  # fmt: skip
    report = project.run()
    assert report.counts() == {"passed": 1}, report.text


def test_sends_of_one_moment_are_requests_of_their_own(project: Project) -> None:
    """A test counts them, and an error that it pushes meets one of them: other queues go on."""
    project.write("test_it.py", """
        import asyncio
        from lockstep.client import Message, Producer, SendError, SendResult

        async def story(broker):
            async with Producer("p") as producer:
                messages = [Message(broker.topic, b"hello", sharding_key=f"k{n}") for n in range(20)]
                await producer.send(messages[0])
                broker.push_error("SEND_MESSAGE_V2", "SYSTEM_BUSY")
                return await asyncio.gather(*map(producer.send, messages), return_exceptions=True)

        def test_it(lockstep_broker):
            ends = {type(end) for end in asyncio.run(story(lockstep_broker))}
            assert ends == {SendResult, SendError}  # the others of that queue fail with it
            assert len(lockstep_broker.requests("SEND_MESSAGE_V2")) == 21
    """)  # fmt: skip
    report = project.run()
    assert report.counts() == {"passed": 1}, report.text


def test_a_round_trip_takes_as_long_as_it_is_told(project: Project) -> None:
    """A slow network is slow for every request, and answers stay in order."""
    project.write("test_it.py", """
        import asyncio
        import time
        from lockstep.client import Message, Producer

        async def story(broker):
            async with Producer("p") as producer:
                await producer.send(Message(broker.topic, b"0", sharding_key="k"))
                broker.set_rtt(150)
                began = time.monotonic()
                sends = [producer.send(Message(broker.topic, b"x", sharding_key="k")) for _ in range(20)]
                offsets = [sent.queue_offset for sent in await asyncio.gather(*sends)]
                assert time.monotonic() - began >= 0.15
                broker.set_rtt(0)
            assert offsets == list(range(1, 21))

        def test_it(lockstep_broker):
            asyncio.run(story(lockstep_broker))
    """)  # fmt: skip
    report = project.run()
    assert report.counts() == {"passed": 1}, report.text
