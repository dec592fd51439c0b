"""The exhibits by their names."""

from typing import Final

from lockstep.simulation.museum import answers, commits, first_offsets, owners, pop_calls, pop_offsets, waiting

__all__ = ["EXHIBITS"]

_ALL: Final = (
    first_offsets.FIRST_OFFSET_TWICE,
    first_offsets.ERROR_MEANS_MIN,
    first_offsets.ERROR_MEANS_LATEST,
    waiting.GRANT_NOT_NOTICED,
    waiting.NO_UNLOCK_AT_SHUTDOWN,
    waiting.RENEWAL_NOT_NOTICED,
    waiting.EVERYBODY_TIMED_OUT,
    waiting.LOST_BUT_OWNED,
    waiting.COUNT_LEAK,
    answers.FAILED_MESSAGE,
    commits.COMMIT_BEFORE_CALL,
    commits.UNLOCK_BEFORE_COMMIT,
    commits.OLD_COMMIT_AGAIN,
    owners.EVICTED_MEMBER,
    owners.READ_UNDER_WAY,
    owners.LAST_TO_ASK_WINS,
    pop_calls.LOST_POP,
    pop_calls.ID_AFTER_TIMEOUT,
    pop_calls.BUSY_QUEUE,
    pop_calls.GROUP_WITHOUT_FLAG,
    pop_calls.STARTS_UNORDERED,
    pop_offsets.PULL_OFFSET,
    pop_offsets.RESET_WITHOUT_EFFECT,
    pop_offsets.STARTS_AGAIN,
    pop_offsets.BATCH_OF_ONE_KEY,
)
EXHIBITS: Final = {exhibit.key: exhibit for exhibit in _ALL}
