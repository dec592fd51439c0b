"""Long work in steps: turns of the loop, the next job, and jobs that wait."""

from collections.abc import Callable

import pytest

from lockstep.broker.sliced_work import SlicedWork, Steps


class Loop:
    """Turns of a loop that the test runs; `done` is what jobs did, in order."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.done: list[str] = []
        self.work = SlicedWork()
        self.work.soon = self.soon.append

    def job(self, name: str, steps: int) -> Steps:
        for number in range(steps):
            self.done.append(f"{name}{number}")
            if number < steps - 1:
                yield None

    def turn(self) -> int:
        """Returns how many steps it took."""
        before, due = len(self.done), self.soon
        self.soon = []
        self.work.soon = self.soon.append
        for callback in due:
            callback()
        return len(self.done) - before


def test_a_short_job_is_done_at_once_and_a_long_one_a_few_steps_a_turn() -> None:
    """Ten steps at most are taken from one turn to the next, those that came at once among them."""
    loop = Loop()
    loop.work.start("a", loop.job("a", 1))
    assert loop.done == ["a0"]
    loop.work.start("b", loop.job("b", 25))
    assert loop.done[1:] == ["b0"]
    assert [loop.turn() for _ in range(4)] == [10, 10, 4, 0]
    assert loop.work.count_of("b") == 0


def test_many_short_jobs_at_once_do_not_share_one_turn() -> None:
    """As when hundreds of connections end together."""
    loop = Loop()
    for number in range(25):
        loop.work.start(number, loop.job(f"{number}:", 1))
    assert len(loop.done) == 10
    assert [loop.turn() for _ in range(3)] == [10, 5, 0]


def test_keys_take_turns_and_jobs_of_one_key_keep_their_order() -> None:
    """A long job delays only jobs of its own key."""
    loop = Loop()
    loop.work.start("a", loop.job("a", 6))
    loop.work.start("a", loop.job("A", 1))
    loop.work.start("b", loop.job("b", 2))
    assert (loop.work.count_of("a"), loop.work.count_of("b")) == (2, 1)
    loop.turn()
    assert loop.done == ["a0", "b0", "a1", "b1", "a2", "a3", "a4", "a5", "A0"]


def test_a_job_that_waits_is_put_aside_with_those_behind_it() -> None:
    """Others go on; the awaited event may also happen at once."""
    loop, resumes = Loop(), list[Callable[[], None]]()

    def waiting() -> Steps:
        loop.done.append("before")
        yield resumes.append
        loop.done.append("after")

    loop.work.start("a", waiting())
    loop.work.start("a", loop.job("a", 1))
    loop.work.start("b", loop.job("b", 1))
    loop.turn()
    assert (loop.done, loop.work.count_of("a")) == (["before", "b0"], 2)
    resumes[0]()
    loop.turn()
    assert loop.done[2:] == ["after", "a0"]
    resumes[0]()  # a second time does nothing
    assert loop.work.count_of("a") == 0


def test_without_a_loop_all_is_done_at_once() -> None:
    """Also a job that waits for something that is ready."""
    work, done = SlicedWork(), list[str]()

    def steps() -> Steps:
        yield None
        yield lambda resume: resume()
        done.append("all")

    work.start("a", steps())
    assert done == ["all"]


def failing(steps: int) -> Steps:
    for _ in range(steps):
        yield None
    raise ValueError("no")


def test_a_job_that_fails_ends_alone() -> None:
    """The jobs behind it and those of other keys go on, whether it fails at its first step or later."""
    for steps in (0, 1):
        loop = Loop()
        loop.work.start("a", loop.job("a", 2))
        loop.work.start("a", failing(steps))
        loop.work.start("a", loop.job("A", 1))
        loop.work.start("b", loop.job("b", 15))
        with pytest.raises(ValueError, match="no"):
            loop.turn()
        assert loop.work.count_of("a") == 1
        for _ in range(3):
            loop.turn()
        assert "A0" in loop.done
        assert loop.done[-1] == "b14"


def test_a_first_step_that_fails_is_its_starters_concern() -> None:
    """Nothing is left of it, and the next job of its key is done."""
    loop = Loop()
    with pytest.raises(ValueError, match="no"):
        loop.work.start("a", failing(0))
    assert loop.work.count_of("a") == 0
    loop.work.start("a", loop.job("a", 1))
    assert loop.done == ["a0"]
