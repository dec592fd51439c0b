"""What RocketMQ does and no order depends on: rules that no test noticed once."""

from typing import Final

from lockstep.simulation.museum.variant import edited, put
from tests.mutants.protection import Protection

__all__ = ["BESIDE_ORDER"]


# Modules
LISTENER: Final = "lockstep.client.consumer.listener"
MEMBER: Final = "lockstep.client.consumer.member"
PUSH_MEMBER: Final = "lockstep.client.consumer.push_member"
RETRIES: Final = "lockstep.client.producer.retries"

BESIDE_ORDER: Final = (
    Protection(
        "hook-success-of-commit",
        "A consume hook is told that COMMIT was no success.",
        put(LISTENER, "_DONE", 'frozenset({"SUCCESS", "CONSUME_SUCCESS"})'),
        ("tests/scenarios/consumers/test_consume_hooks.py",),
    ),
    Protection(
        "message-model-of-heartbeat",
        "A heartbeat says clustering for a broadcasting consumer.",
        edited(MEMBER, "GroupMember._consumer_data", "self._settings.message_model", "MessageModel.CLUSTERING"),
        ("tests/scenarios/consumers/test_broadcasting.py",),
    ),
    Protection(
        "flag-of-retry",
        "A retry that the consumer sends itself loses the flag of its message.",
        edited(RETRIES, "InnerProducer.retry", "message.flag", "0"),
        ("tests/client/dispatch/test_send_back.py",),
    ),
    Protection(
        "thread-count-reaches-service",
        "A new number of threads does not reach the consume service.",
        edited(PUSH_MEMBER, "PushMember.set_consume_thread_count", "self.service.set_consume_thread_count(count)", ""),
        ("tests/scenarios/consumers/test_concurrent.py::test_the_number_of_threads_may_change",),
    ),
)
