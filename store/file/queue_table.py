"""All queues of a store, by topic and queue id."""

from typing import NamedTuple

from lockstep.store.file.queue import FileQueue

__all__ = ["QueueTable", "Tails"]


class Tails(NamedTuple):
    """`left_bytes`: of entries that wait in memory still; `failure`: why some of them do, empty when none has to."""

    left_bytes: int
    failure: str


class QueueTable(dict[tuple[str, int], FileQueue]):
    def write_tails(self) -> None:
        """Every tail that can be written is. Raises OSError when one could not."""
        failed: OSError | None = None
        for queue in self.values():
            try:
                queue.write_tail()
            except OSError as error:
                failed = error
        if failed is not None:
            raise failed

    def write_long_tails(self) -> Tails:
        left_bytes, failure = 0, ""
        for queue in self.values():
            if queue.has_long_tail:
                try:
                    queue.write_tail()
                except OSError as error:
                    failure = f"{queue.segments.folder} cannot be written to: {error.strerror or error}"
            left_bytes += queue.tail_bytes
        return Tails(left_bytes, failure)

    def delete_trimmed(self) -> None:
        """Files whose entries are all gone. Raises OSError."""
        for queue in self.values():
            queue.delete_trimmed()
