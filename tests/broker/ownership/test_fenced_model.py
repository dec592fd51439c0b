"""Fenced locks against a model that is written as the rules are: any calls of any clients at any times."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from lockstep.protocol.epochs import boot_of
from tests.broker.helpers import NOW_MS
from tests.broker.ownership.fences import DELAY_MS, LEASE_MS, LEGACY_MS, Fences

CLIENTS = ("a", "b", "java", "go")
LEGACY = ("java", "go")
UNLOCK_MS = 1000
PASSES_MS = (0, 1, 999, 1000, 2999, 3000, 20_000, 30_999, 31_000, 59_999, 60_000)


@dataclass
class Period:
    """The last period of the queue. `over_ms`: from then on it has no owner; the connection is the client's last."""

    client_id: str
    epoch: int
    renewed_ms: int
    over_ms: int
    connection: str | None
    unlocked: bool = False


class Model:
    """One queue. `period` None: no client has had it since it was freed."""

    def __init__(self) -> None:
        self.period: Period | None = None
        self.epochs: list[int] = []  # all that were given, in order
        self.connections = {client_id: f"{client_id}1" for client_id in CLIENTS}

    def settle(self, now_ms: int) -> None:
        if self.period is not None and self.period.unlocked and now_ms >= self.period.over_ms:
            self.period = None

    def owner(self, now_ms: int) -> str | None:
        return self.period.client_id if self.period is not None and now_ms < self.period.over_ms else None

    def lock(self, client_id: str, epoch: int, now_ms: int) -> str:
        """What the table must answer: "new", "same" or "refused"."""
        self.settle(now_ms)
        period, owner = self.period, self.owner(now_ms)
        if owner is None:
            return "refused" if epoch else "new"
        assert period is not None
        mine = owner == client_id and (client_id in LEGACY or epoch == period.epoch)
        if mine and period.unlocked:
            return "new"
        return "same" if mine else "refused"

    def granted(self, client_id: str, epoch: int, now_ms: int) -> None:
        connection = self.connections[client_id]
        self.period = Period(client_id, epoch, now_ms, now_ms + LEASE_MS, connection)

    def unlock(self, client_id: str, epoch: int, now_ms: int) -> None:
        self.settle(now_ms)
        period = self.period
        if period is None or period.client_id != client_id or (client_id not in LEGACY and period.epoch != epoch):
            return
        if client_id in LEGACY and now_ms < period.over_ms:
            if not period.unlocked:
                period.unlocked, period.over_ms = True, min(period.over_ms, now_ms + UNLOCK_MS)
        else:
            self.period = None

    def commit(self, now_ms: int) -> None:
        if self.period is not None and self.period.unlocked:
            self.period = None

    def gone(self, client_id: str, now_ms: int, *, by_peer: bool) -> None:
        self.settle(now_ms)
        period, ended = self.period, self.connections[client_id]
        self.connections[client_id] = f"{client_id}{int(ended[len(client_id) :]) + 1}"
        if period is None or period.connection != ended:
            return
        period.connection = None
        if not by_peer or now_ms >= period.over_ms:
            return
        if period.unlocked:
            self.period = None
            return
        delay_ends_ms = period.renewed_ms + LEGACY_MS if client_id in LEGACY else now_ms + DELAY_MS
        period.over_ms = min(period.over_ms, delay_ends_ms)

    def left(self, client_id: str, now_ms: int) -> None:
        self.settle(now_ms)
        if self.period is not None and self.period.connection == self.connections[client_id]:
            self.period = None

    def check(self, client_id: str, epoch: int, now_ms: int, *, pull: bool) -> str:
        period = self.period
        if period is None:
            return "NOT_HELD"
        if period.client_id == client_id and period.epoch == epoch:
            return "NOT_HELD" if pull and now_ms >= period.over_ms else "OK"
        return "STALE" if period.client_id == client_id and epoch < period.epoch else "FENCED"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["claim", "claim", "renew", "renew", "unlock", "commit", "lost", "closed", "left", "due"]),
        st.sampled_from(CLIENTS),
        st.integers(0, 2),  # which of the client's last epochs it presents
        st.sampled_from(PASSES_MS),
    ),
    max_size=40,
)


@given(STEPS)
def test_the_table_agrees_with_the_rules(steps: list[tuple[str, str, int, int]]) -> None:
    """Owners, epochs, and the answers to every client's every epoch; and no epoch is given twice."""
    fences, model = Fences(), Model()
    given_to: dict[str, list[int]] = {client_id: [1] for client_id in CLIENTS}  # 1: an epoch of nobody
    now_ms = NOW_MS
    for verb, client_id, back, passed_ms in steps:
        now_ms += passed_ms
        presented = given_to[client_id][-1 - back :][0]
        connection = model.connections[client_id]
        if verb in ("claim", "renew"):
            epoch = presented if verb == "renew" and client_id not in LEGACY else 0
            expected = model.lock(client_id, epoch, now_ms)
            answer = fences.ask(client_id, None if client_id in LEGACY else epoch, now_ms, connection=connection)
            got = fences.epoch_of(answer)
            if expected == "refused":
                assert got == 0
            else:
                assert (model.period is not None and got == model.period.epoch) == (expected == "same")
                if expected == "new":
                    assert got > max(model.epochs, default=0)
                    assert boot_of(got) == NOW_MS
                    model.epochs.append(got)
                    given_to[client_id].append(got)
                model.granted(client_id, got, now_ms)
        elif verb == "unlock":
            fences.unlock(client_id, None if client_id in LEGACY else presented, now_ms)
            model.unlock(client_id, presented, now_ms)
        elif verb == "commit":
            fences.locks.committed("G", "T", 0, now_ms)
            model.commit(now_ms)
        elif verb == "left":
            fences.left(client_id, now_ms, connection=connection)
            model.left(client_id, now_ms)
        elif verb in ("lost", "closed"):
            fences.ended(connection, now_ms, by_peer=verb == "lost")
            model.gone(client_id, now_ms, by_peer=verb == "lost")
        fences.locks.due(now_ms)
        model.settle(now_ms)
        lock = fences.locks.entry("G", "T", 0)
        assert (lock.client_id if lock is not None and lock.is_live(now_ms) else None) == model.owner(now_ms)
        for one, epochs in given_to.items():
            for epoch in epochs:
                for pull in (False, True):
                    assert fences.check(one, epoch, now_ms, pull=pull) == model.check(one, epoch, now_ms, pull=pull)


@given(STEPS)
def test_whoever_waits_is_told(steps: list[tuple[str, str, int, int]]) -> None:
    """When the queue has no owner, and `due` was called when it asked to be, nobody waits for it."""
    fences = Fences()
    epochs: dict[str, int] = {}
    now_ms = NOW_MS
    for verb, client_id, _, passed_ms in steps:
        now_ms += passed_ms
        while (due_ms := fences.locks.next_due_ms) is not None and due_ms <= now_ms:
            fences.locks.due(due_ms)
        epoch = None if client_id in LEGACY else epochs.get(client_id, 0)
        if verb in ("claim", "renew"):
            answer = fences.ask(client_id, epoch if verb == "renew" else epoch and 0, now_ms)
            epochs[client_id] = fences.epoch_of(answer) or epochs.get(client_id, 0)
        elif verb == "unlock":
            fences.unlock(client_id, epoch, now_ms)
        elif verb == "commit":
            fences.locks.committed("G", "T", 0, now_ms)
        elif verb == "left":
            fences.left(client_id, now_ms)
        elif verb != "due":
            fences.ended(client_id, now_ms, by_peer=verb == "lost")
        while (due_ms := fences.locks.next_due_ms) is not None and due_ms <= now_ms:
            fences.locks.due(due_ms)
        lock = fences.locks.entry("G", "T", 0)
        if lock is None or not lock.is_live(now_ms):
            assert fences.waiting_count() == 0
