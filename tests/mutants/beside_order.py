"""What RocketMQ does and no order depends on: rules that no test noticed once."""

from typing import Final

from tests.mutants.protection import Protection

__all__ = ["BESIDE_ORDER"]


BESIDE_ORDER: Final = (
    Protection(
        "hook-success-of-commit",
        "A consume hook is told that COMMIT was no success.",
        "client/consumer/listener.py",
        '_DONE = frozenset({"SUCCESS", "COMMIT", "CONSUME_SUCCESS"})',
        '_DONE = frozenset({"SUCCESS", "CONSUME_SUCCESS"})',
        ("tests/scenarios/consumers/test_consume_hooks.py",),
    ),
    Protection(
        "message-model-of-heartbeat",
        "A heartbeat says clustering for a broadcasting consumer.",
        "client/consumer/member.py",
        "            self._settings.message_model,\n",
        "            MessageModel.CLUSTERING,\n",
        ("tests/scenarios/consumers/test_broadcasting.py",),
    ),
    Protection(
        "flag-of-retry",
        "A retry that the consumer sends itself loses the flag of its message.",
        "client/producer/retries.py",
        "            message.flag,\n",
        "            0,\n",
        ("tests/client/dispatch/test_send_back.py",),
    ),
    Protection(
        "thread-count-reaches-service",
        "A new number of threads does not reach the consume service.",
        "client/consumer/push_member.py",
        "        self.service.set_consume_thread_count(count)\n",
        "",
        ("tests/scenarios/consumers/test_concurrent.py::test_the_number_of_threads_may_change",),
    ),
)
