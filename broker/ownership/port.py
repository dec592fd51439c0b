"""The port of ownership: who may act on a queue of a consumer group.

It has two ways: RocketMQ's locks (`rocketmq`), and fenced locks (`fenced`, docs/fencing.md). Who uses it does not ask
which one it is: RocketMQ's way allows whatever it does not check.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from lockstep.broker.config import BrokerConfig
from lockstep.broker.ownership.answers import LockAnswer, Locked, LockOutcome
from lockstep.broker.ownership.claim import Claim, Claiming
from lockstep.broker.ownership.counts import LockCounts
from lockstep.broker.ownership.denial import Act, Denial, Denials
from lockstep.broker.ownership.journal import LockJournal
from lockstep.broker.peer import Peer
from lockstep.broker.sliced_work import SlicedWork
from lockstep.protocol.bodies.locks import LockBatchBody, LockGrant, LockTableRow
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.logs import EventLog
from lockstep.store.format.lock_table import LockKey, StoredLock

__all__ = [
    "EXPIRED_AT_ONCE_MAX",
    "KEPT_LIVES",
    "Around",
    "KeptLocks",
    "LockPersistence",
    "LockView",
    "Owners",
    "Ownership",
    "Timed",
]

# An entry without a renewal is kept for so many lives, so that a lock list shows the last owners of a stopped group.
KEPT_LIVES: Final = 10
# Entries that one call of `expire` removes: a few milliseconds of work.
EXPIRED_AT_ONCE_MAX: Final = 5000


class Owners(NamedTuple):
    """The last owner of each queue of a group.

    Args:
        version: Another one after each change of an owner, of any group.
        rows: Topic, queue id, client id, and since when, epoch ms.
    """

    version: int
    rows: Iterator[tuple[str, int, str, int]]


class LockView(Protocol):
    """The locks as they are, for lists and metrics."""

    def __len__(self) -> int: ...
    def groups(self) -> tuple[str, ...]: ...
    def held_topics(self, consumer_group: str, now_ms: int, /) -> Iterator[str]:
        """The topic of each queue of this moment that a client of the group owns, one by one."""

    def rows(self, now_ms: int, consumer_group: str | None = None) -> Iterator[LockTableRow]:
        """All entries, or those of one group, sorted by group and queue; also ended ones."""


class KeptLocks(Protocol):
    """Locks that a restart brings back."""

    @property
    def lease_ms(self) -> int: ...
    @property
    def last_epoch(self) -> int:
        """At least as high as every epoch that was given."""

    @property
    def head(self) -> tuple[int, bool]:
        """The boot of its epochs, and whether a grace period lasts."""

    def restore(self, kept: Iterable[StoredLock], boot: int, now_ms: int) -> None:
        """Locks of the last run: each has its lease once more. New epochs are above all of `boot`."""

    def begin_grace(self, ends_ms: int) -> None:
        """The table of the last run is lost: until `ends_ms` a queue goes only to who presents an epoch of it."""


class Timed(Protocol):
    """Has something to do at `next_due_ms`."""

    @property
    def next_due_ms(self) -> int | None: ...


class LockPersistence(Protocol):
    """Keeps the periods of ownership on the disk."""

    @property
    def is_durable(self) -> bool:
        """Whether all changes so far are on the disk."""

    def began(self, lock: StoredLock) -> None:
        """A period of ownership began. The committed offset at which it begins is not known to its table."""

    def freed(self, key: LockKey) -> None:
        """A queue has no lock any more, also none that has ended."""

    def when_durable(self, then: Callable[[str], None]) -> None:
        """Call `then` when all changes so far are on the disk, or with the reason why they are not."""

    def tick(self) -> None:
        """Called every 10 s: write what no answer waits for."""


class Around(NamedTuple):
    """What ownership needs of the broker around it.

    Args:
        end_of: The end of a queue, by topic and queue id.
        is_broadcasting: Whether each member of a group pulls all queues.
        tell_free: Tells a connection that queues of a group, for which it waits, are free. The last argument: whether
            its client sends epochs.
        on_silent: Called with a group, a client id and the time when the last lease of a client of ours has ended.
    """

    work: SlicedWork
    log: EventLog
    end_of: Callable[[str, int], int]
    is_broadcasting: Callable[[str], bool]
    tell_free: Callable[[Peer, str, tuple[MessageQueue, ...], bool], None]
    on_silent: Callable[[str, str, int], None]


class Ownership(ABC):
    """Who owns which queue.

    Attributes:
        table: The locks.
        kept_table: Those of them that a broker with files keeps; None: they are in memory only.
        queues_max: How many queues one lock request may have, and the setting that says so.
        counts, journal: Of changes of owners, and the last ones themselves.
        denials: Counts of requests that were refused, because their sender does not own the queue.
        timed: What has ends that must be noticed when they come; `end_due` notices them.
        persistence: Keeps periods on the disk; None: they are in memory only.
        when_changed: Each is called after locks may have begun, gone on or ended; with the answers to a claim, if it
            was one that was not renewed as a whole.
        on_pullers_changed: Called with group, queue and time when a queue has other clients that may pull it.
        on_bound: Called with a connection and the time when the connection became that of another client too.
    """

    table: LockView
    kept_table: KeptLocks | None = None
    queues_max: tuple[int, str]
    timed: tuple[Timed, ...] = ()

    def __init__(self, config: BrokerConfig, started_ms: int) -> None:
        self.journal = LockJournal(config.lock_changes_max, started_ms, config.lock_delay_ms)
        self.counts = LockCounts(config.metrics_series_max)
        self.journal.on_takeover = self.counts.taken_over
        self.denials = Denials()
        self.persistence: LockPersistence | None = None
        self.when_changed: list[Callable[[LockBatchBody | None, Sequence[LockAnswer]], object]] = []
        self.on_pullers_changed: Callable[[str, tuple[str, int], int], None] = lambda *_: None
        self.on_bound: Callable[[Peer, int], None] = lambda *_: None

    @abstractmethod
    def use(self, config: BrokerConfig) -> None:
        """Settings changed at run time."""

    # Locks ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def lock(self, asked: LockBatchBody, connection: Peer, now_ms: int, *, each: bool = False) -> Locked:
        """Claim or renew queues. `each`: there is an answer for each queue also when all are renewed."""

    @abstractmethod
    def unlock(self, asked: LockBatchBody, connection: Peer, now_ms: int) -> Sequence[LockAnswer]:
        """Release the queues that the client owns. Returns REFUSED for each of the others."""

    def _record(self, asked: LockBatchBody, answers: Sequence[LockAnswer], now_ms: int) -> None:
        """Count the answers to a lock request. The journal gets the refusals."""
        for answer in answers:
            self.counts.outcomes[answer.outcome] += 1
            if answer.outcome is LockOutcome.REFUSED:
                self.journal.refused(asked.consumer_group, answer.queue, asked.client_id, answer.other, now_ms)

    def _changed(self, asked: LockBatchBody | None = None, answers: Sequence[LockAnswer] = ()) -> None:
        for callback in self.when_changed:
            callback(asked, answers)

    # Checks: each returns None where the sender may do it, else why not ----------------------------------------

    @abstractmethod
    def deny(self, connection: Peer, claim: Claiming, act: Act, now_ms: int) -> Denial | None:
        """May the sender do this now?"""

    @abstractmethod
    def deny_commit(
        self, connection: Peer, claim: Claiming, offset: int, stored: int, now_ms: int, alone: bool
    ) -> Denial | None:
        """May the sender store this offset?

        Args:
            stored: The offset that is stored; -1 for none.
            alone: It does not come with a pull, which `deny` has allowed.
        """

    @abstractmethod
    def committed(self, claim: Claiming, now_ms: int, alone: bool) -> None:
        """A commit that `deny_commit` allowed was stored."""

    @abstractmethod
    def deny_reset(self, connection: Peer, claim: Claiming, now_ms: int) -> Denial | None:
        """May the sender move its own offset?"""

    @abstractmethod
    def deny_reset_to(self, connection: Peer, claim: Claiming, offset: int, stored: int, now_ms: int) -> Denial | None:
        """May the owner, whom `deny_reset` has allowed, move it there?"""

    @abstractmethod
    def begin_epoch(self, connection: Peer, claim: Claiming, now_ms: int) -> LockGrant | Denial:
        """The owner has moved its offset: begin a new period of it."""

    @abstractmethod
    def claim_to_hold(self, claim: Claiming) -> Claim | None:
        """What `deny_held` will need of a pull that is held; None: nothing, because it will not be checked again."""

    @abstractmethod
    def deny_held(self, connection: Peer, claim: Claim, now_ms: int) -> Denial | None:
        """May the sender of a held pull still pull? Not counted."""

    @abstractmethod
    def is_owned(self, consumer_group: str, topic: str, queue_id: int, now_ms: int) -> bool:
        """Whether a queue has an owner beside whom nobody else may get its messages."""

    def owners(self, consumer_group: str) -> Owners | None:
        """Who had which queue last, for members that share the queues by it; None: this way does not say it."""
        return None

    # Resets by an administrator --------------------------------------------------------------------------------

    @abstractmethod
    def are_guarded(self, consumer_group: str, topic: str, queue_ids: Iterable[int], now_ms: int) -> bool:
        """Whether a commit of one of these queues is taken from its owner only, or was so not long ago."""

    @abstractmethod
    def reset(self, consumer_group: str, topic: str, offsets: Mapping[int, int], now_ms: int) -> bool:
        """An administrator sets the offsets of these queues, by queue id.

        Returns:
            Whether their owners store no others until they know of it; False: a reset is a commit as any other.
        """

    # Clients and connections -----------------------------------------------------------------------------------

    @abstractmethod
    def bind(self, connection: Peer, client_id: str, consumer_groups: Iterable[str], now_ms: int) -> None:
        """A heartbeat says that this client, with these groups, speaks over the connection."""

    @abstractmethod
    def client_left(self, consumer_group: str, client_id: str, connection: Peer, now_ms: int) -> None:
        """UNREGISTER_CLIENT came over the connection."""

    @abstractmethod
    def on_closed(self, connection: Peer) -> None:
        """The connection is closed, or its client is silent for long."""

    @abstractmethod
    def connection_ended(self, connection: Peer, now_ms: int) -> None:
        """Called after `on_closed`, with the time, when the connection is closed."""

    # Time ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def end_due(self, now_ms: int) -> None:
        """Called when the time of one of `timed` has come, and again until none is due."""

    @abstractmethod
    def expire(self, now_ms: int) -> None:
        """Called every 10 s."""

    # Disk ------------------------------------------------------------------------------------------------------

    @property
    def is_durable(self) -> bool:
        """Whether all periods are on the disk that must be there before a client acts in them."""
        return self.persistence is None or self.persistence.is_durable

    @abstractmethod
    def when_durable(
        self, consumer_group: str, begun: Sequence[tuple[MessageQueue, int]], now_ms: int, then: Callable[[str], None]
    ) -> None:
        """Call `then` with "" when the present periods are on the disk; if they cannot be kept, with the reason.

        Args:
            begun: Periods that began now, by queue and epoch: they end if they cannot be kept.
        """

    # Facts for administrators ----------------------------------------------------------------------------------

    @abstractmethod
    def denial_counts(self) -> Mapping[str, int] | None:
        """ "pull.fenced" -> requests refused; None: this way refuses none."""

    @abstractmethod
    def runtime_rows(self) -> Mapping[str, str]:
        """What RocketMQ's table of runtime information does not have."""
