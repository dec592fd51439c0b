"""Create, change and delete topics: each after a page that shows what will be changed."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lockstep.client.admin.client import AdminClient
from lockstep.client.admin.removal import groups_with_kept_offsets, online_consumers
from lockstep.client.errors import TopicNotFoundError
from lockstep.console.acts.changes import BadInputError, Outcome, at_each, checked_form, log_change, outcome_of
from lockstep.console.console import console_of
from lockstep.console.pages.parameters import text_of
from lockstep.console.pages.questions import answer_of
from lockstep.console.render import render
from lockstep.protocol.bodies.attributes import MESSAGE_TYPE, MESSAGE_TYPES
from lockstep.protocol.bodies.broker import BrokerData, TopicConfig
from lockstep.protocol.codes import Permission
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.names import check_topic, is_system_topic
from lockstep.remoting.texts import whole_number

__all__ = ["TopicPlan", "Wanted", "planned", "routes", "wanted_of"]

_QUEUES_MAX: Final = 65_536  # a broker of ours takes fewer, and says how many
PERMISSIONS: Final[Mapping[str, int]] = {
    "rw": int(Permission.READ | Permission.WRITE),
    "r": int(Permission.READ),
    "w": int(Permission.WRITE),
}


class Wanted(NamedTuple):
    """What the reader asks for.

    Args:
        attributes: How attributes change, as `+message.type=FIFO`; "": they stay.
        broker: The only one that is changed; "": all.
        force: Also when keys go to other queues.
    """

    topic: str
    read_queues: int
    write_queues: int
    perm: int
    attributes: str = ""
    broker: str = ""
    force: bool = False


class TopicPlan(NamedTuple):
    """What a broker has of the topic, None without it, and what it will have."""

    broker: BrokerData
    before: TopicConfig | None
    after: TopicConfig
    attributes: str

    @property
    def changes(self) -> bool:
        return bool(self.attributes) or self.before is None or self.before._replace(attributes=()) != self.after


def wanted_of(values: Mapping[str, str]) -> Wanted | None:
    """What a form says; None: it is not filled in yet. Raises BadInputError, LocalProtocolError."""
    if "perm" not in values:
        return None
    topic = text_of(values, "topic")
    check_topic(topic)
    if is_system_topic(topic):
        raise BadInputError("changes.bad_system", topic=topic)
    counts = [whole_number(text_of(values, name)) for name in ("read", "write")]
    if any(count is None or not 0 < count <= _QUEUES_MAX for count in counts):
        raise BadInputError("changes.bad_queues", most=_QUEUES_MAX)
    perm, kind = text_of(values, "perm"), text_of(values, "type")
    if perm not in PERMISSIONS:
        raise BadInputError("changes.bad_perm")
    parts = [f"+{MESSAGE_TYPE}={kind}"] if kind else []
    parts += [part for part in text_of(values, "attributes").replace(" ", "").split(",") if part]
    read, write = (count or 0 for count in counts)
    force = text_of(values, "force") == "1"
    return Wanted(topic, read, write, PERMISSIONS[perm], ",".join(parts), text_of(values, "broker"), force)


async def _known(admin: AdminClient, topic: str) -> dict[str, TopicConfig]:
    """The settings of the topic by broker, empty when there is none."""
    try:
        return await admin.topic_configs(topic)
    except TopicNotFoundError:
        return {}


async def planned(admin: AdminClient, wanted: Wanted) -> tuple[list[TopicPlan], bool]:
    """What each broker would change, and whether keys go to other queues, out of order with what is stored there.

    Raises BadInputError when there is no such broker.
    """
    known = await _known(admin, wanted.topic)
    brokers = [one for one in await admin.brokers() if one.master_addr and wanted.broker in ("", one.broker_name)]
    if not brokers:
        raise BadInputError("changes.bad_broker", broker=wanted.broker)
    plans = []
    for broker in sorted(brokers, key=lambda one: one.broker_name):
        before = known.get(broker.broker_name)
        base = before or TopicConfig(wanted.topic)
        after = base._replace(
            read_queue_nums=wanted.read_queues, write_queue_nums=wanted.write_queues, perm=wanted.perm, attributes=()
        )
        plans.append(TopicPlan(broker, before, after, wanted.attributes))
    moves_keys = any(
        (known and plan.before is None)
        or (plan.before is not None and plan.before.write_queue_nums != plan.after.write_queue_nums)
        for plan in plans
    )  # fmt: skip
    return plans, moves_keys


# Create and change -------------------------------------------------------------------------------------------


async def _ask_edit(request: Request) -> Response:
    values = dict(request.query_params)
    try:
        wanted = wanted_of(values)
        if wanted is not None:
            plans, moves_keys = await planned(console_of(request).admin, wanted)
            return await _edit_page(request, values, plans=plans, moves_keys=moves_keys)
    except (BadInputError, LocalProtocolError) as error:
        return await _edit_page(request, values, problem=error)
    return await _edit_page(request, await _as_it_is(request, values))


async def _as_it_is(request: Request, values: dict[str, str]) -> dict[str, str]:
    """The fields of the form as the topic is, or as a new one is by default."""
    topic, config = text_of(values, "topic"), TopicConfig("")
    if topic:
        check_topic(topic)
        config = next(iter((await _known(console_of(request).admin, topic)).values()), config)
    perm = next((name for name, bits in PERMISSIONS.items() if bits == config.perm), "rw")
    queues = {"read": str(config.read_queue_nums), "write": str(config.write_queue_nums)}
    return values | {"topic": topic, **queues, "perm": perm}


async def _edit(request: Request) -> Response:
    admin, form = console_of(request).admin, await checked_form(request)
    try:
        wanted = wanted_of(form)
        if wanted is None:
            raise BadInputError("changes.bad_perm")
        plans, moves_keys = await planned(admin, wanted)
        if moves_keys and not wanted.force:
            raise BadInputError("changes.moves_keys")
    except (BadInputError, LocalProtocolError) as error:
        return await _edit_page(request, form, problem=error)
    by_broker = {plan.broker.broker_name: plan for plan in plans if plan.changes}

    def put(broker: BrokerData) -> Awaitable[None]:
        plan = by_broker[broker.broker_name]
        return admin.at(broker).put_topic(plan.after, plan.attributes or None)

    outcomes = await at_each([plan.broker for plan in by_broker.values()], put)
    log_change(
        request, "put topic", outcomes, topic=wanted.topic, read_queues=wanted.read_queues,
        write_queues=wanted.write_queues, perm=wanted.perm, attributes=wanted.attributes,
    )  # fmt: skip
    return await _edit_page(request, form, plans=plans, outcomes=outcomes)


async def _edit_page(
    request: Request,
    values: dict[str, str],
    *,
    problem: Exception | None = None,
    plans: Sequence[TopicPlan] = (),
    moves_keys: bool = False,
    outcomes: Sequence[Outcome] = (),
) -> Response:
    names = [broker.broker_name for broker in await answer_of(console_of(request).admin.brokers()) or ()]
    return render(
        request, "topic_edit.html", page="topics", status=400 if problem else 200,
        values={"topic": "", "perm": ""} | values, problem=problem,
        plans=plans, changing=[plan for plan in plans if plan.changes], moves_keys=moves_keys, outcomes=outcomes,
        permissions={bits: name for name, bits in PERMISSIONS.items()}, types=MESSAGE_TYPES, names=sorted(names),
    )  # fmt: skip


# Delete ------------------------------------------------------------------------------------------------------


async def _ask_delete(request: Request) -> Response:
    return await _delete_page(request, text_of(request.query_params, "topic"))


async def _delete(request: Request) -> Response:
    admin, form = console_of(request).admin, await checked_form(request)
    topic = text_of(form, "topic")
    if text_of(form, "name") != topic:
        return await _delete_page(request, topic, BadInputError("changes.bad_name"))
    check_topic(topic)
    if is_system_topic(topic) or await online_consumers(admin, topic, await admin.groups_of(topic)):
        return await _delete_page(request, topic)  # which says why it is not done
    outcome = await outcome_of(topic, admin.delete_topic(topic))
    log_change(request, "delete topic", [outcome], topic=topic)
    kept = await answer_of(groups_with_kept_offsets(admin, topic)) if outcome.state == "done" else None
    return render(request, "topic_delete.html", page="topics", topic=topic, outcome=outcome, kept=kept or [])


async def _delete_page(request: Request, topic: str, problem: Exception | None = None) -> Response:
    """What goes with the topic, and a form that asks for its name; without it while members consume the topic."""
    check_topic(topic)
    admin = console_of(request).admin
    try:
        stats, groups = await admin.topic_stats(topic), await admin.groups_of(topic)
    except TopicNotFoundError:
        return render(request, "topic_unknown.html", page="topics", status=404, topic=topic)
    return render(
        request, "topic_delete.html", page="topics", status=400 if problem else 200, topic=topic, problem=problem,
        outcome=None, kept=[], messages=sum(of.message_count for of in stats.values()), groups=groups,
        online=await online_consumers(admin, topic, groups), is_system=is_system_topic(topic),
        queues_count=len(stats),
    )  # fmt: skip


def routes() -> list[Route]:
    return [
        Route("/topic/edit", _ask_edit),
        Route("/topic/edit", _edit, methods=["POST"]),
        Route("/topic/delete", _ask_delete),
        Route("/topic/delete", _delete, methods=["POST"]),
    ]
