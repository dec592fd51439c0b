"""Create, change and delete consumer groups: each after a page that shows what will be changed."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lockstep.client.admin.client import AdminClient
from lockstep.client.admin.removal import own_topics
from lockstep.console.acts.changes import DONE, BadInputError, Outcome, at_each, checked_form, log_change, outcome_of
from lockstep.console.console import console_of
from lockstep.console.pages.parameters import text_of
from lockstep.console.pages.questions import answer_of
from lockstep.console.render import render
from lockstep.protocol.bodies.broker import BrokerData
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.names import check_group
from lockstep.remoting.texts import whole_number

__all__ = ["GroupPlan", "GroupWanted", "planned", "routes", "wanted_of"]

_RETRIES_MAX: Final = 10_000
_ORDERS: Final[Mapping[str, bool | None]] = {"": None, "yes": True, "no": False}


class GroupWanted(NamedTuple):
    """`in_order`, `retries`: as in AdminClient.put_group; None: as it is."""

    group: str
    in_order: bool | None = None
    retries: int | None = None


class GroupPlan(NamedTuple):
    """What a broker has of the group, None without it, and what it will have."""

    broker: BrokerData
    before: SubscriptionGroupConfig | None
    after: SubscriptionGroupConfig

    @property
    def changes(self) -> bool:
        return self.before != self.after


def wanted_of(values: Mapping[str, str]) -> GroupWanted | None:
    """What a form says; None: it is not filled in yet. Raises BadInputError, LocalProtocolError."""
    if "order" not in values:
        return None
    group, order, text = text_of(values, "group"), text_of(values, "order"), text_of(values, "retries")
    check_group(group)
    if order not in _ORDERS:
        raise BadInputError("changes.bad_order")
    retries = whole_number(text)
    if text and (retries is None or not 0 <= retries <= _RETRIES_MAX):
        raise BadInputError("changes.bad_retries", most=_RETRIES_MAX)
    return GroupWanted(group, _ORDERS[order], retries)


async def planned(admin: AdminClient, wanted: GroupWanted) -> list[GroupPlan]:
    """What each broker would change. Raises one of FAILURES when one does not say what it has."""
    plans = []
    for broker in sorted(await admin.brokers(), key=lambda one: one.broker_name):
        if broker.master_addr is not None:
            configs = (await admin.at(broker).group_configs()).get(wanted.group, ())
            before = next(iter(configs), None)
            after = before or SubscriptionGroupConfig(wanted.group)
            if wanted.in_order is not None:
                after = after._replace(consume_message_orderly=wanted.in_order)
            if wanted.retries is not None:
                after = after._replace(retry_max_times=wanted.retries)
            plans.append(GroupPlan(broker, before, after))
    return plans


# Create and change -------------------------------------------------------------------------------------------


async def _ask_edit(request: Request) -> Response:
    values = dict(request.query_params)
    try:
        wanted = wanted_of(values)
        plans = await planned(console_of(request).admin, wanted) if wanted is not None else ()
    except (BadInputError, LocalProtocolError) as error:
        return _edit_page(request, values, problem=error)
    return _edit_page(request, values, plans)


async def _edit(request: Request) -> Response:
    admin, form = console_of(request).admin, await checked_form(request)
    try:
        wanted = wanted_of(form)
        if wanted is None:
            raise BadInputError("changes.bad_order")
    except (BadInputError, LocalProtocolError) as error:
        return _edit_page(request, form, problem=error)
    changing = [plan.broker for plan in await planned(admin, wanted) if plan.changes]

    def put(broker: BrokerData) -> Awaitable[None]:
        return admin.at(broker).put_group(wanted.group, in_order=wanted.in_order, retries=wanted.retries)

    outcomes = await at_each(changing, put)
    log_change(request, "put group", outcomes, group=wanted.group, in_order=wanted.in_order, retries=wanted.retries)
    now = await answer_of(planned(admin, wanted)) or ()  # a broker may take a setting and not keep it
    unkept = [plan.broker.broker_name for plan in now if plan.changes]
    kept = {one.name for one in outcomes if one.state == DONE}
    return _edit_page(request, form, outcomes=outcomes, unkept=[name for name in unkept if name in kept])


def _edit_page(
    request: Request,
    values: dict[str, str],
    plans: Sequence[GroupPlan] = (),
    *,
    problem: Exception | None = None,
    outcomes: Sequence[Outcome] = (),
    unkept: Sequence[str] = (),
) -> Response:
    return render(
        request, "group_edit.html", page="groups", status=400 if problem else 200, values=values, problem=problem,
        plans=plans, changing=[plan for plan in plans if plan.changes], outcomes=outcomes, unkept=unkept,
        orders=list(_ORDERS),
    )  # fmt: skip


# Delete ------------------------------------------------------------------------------------------------------


async def _ask_delete(request: Request) -> Response:
    return await _delete_page(request, text_of(request.query_params, "group"))


async def _delete(request: Request) -> Response:
    admin, form = console_of(request).admin, await checked_form(request)
    group, with_topics = text_of(form, "group"), text_of(form, "topics") == "1"
    check_group(group)
    if text_of(form, "name") != group:
        return await _delete_page(request, group, BadInputError("changes.bad_name"))
    if await admin.consumer_ids(group):
        return await _delete_page(request, group)  # which says that its members are online
    names = await own_topics(admin, group, (await admin.all_groups()).get(group, ())) if with_topics else []
    outcomes = await at_each(
        [one for one in await admin.brokers() if one.master_addr], lambda broker: admin.at(broker).delete_group(group)
    )
    if all(one.state == DONE for one in outcomes):
        outcomes += [await outcome_of(name, admin.delete_topic(name)) for name in names]
    log_change(request, "delete group", outcomes, group=group)
    # RocketMQ 5 makes a group again while it deletes it, where groups are made by themselves.
    is_back = group in (await answer_of(admin.group_configs()) or {})
    return render(
        request, "group_delete.html", page="groups", group=group, outcomes=outcomes, problem=None, is_back=is_back
    )


async def _delete_page(request: Request, group: str, problem: Exception | None = None) -> Response:
    """What goes with the group, and a form that asks for its name; without it while members are online."""
    check_group(group)
    admin = console_of(request).admin
    online, groups = await admin.consumer_ids(group), await admin.all_groups()
    if group not in groups and not online and group not in await admin.group_configs():
        return render(request, "group_unknown.html", page="groups", status=404, name=group)
    return render(
        request, "group_delete.html", page="groups", status=400 if problem else 200, group=group, problem=problem,
        outcomes=(), online=online, consumed=groups.get(group, ()),
        topics=await own_topics(admin, group, groups.get(group, ())),
    )  # fmt: skip


def routes() -> list[Route]:
    return [
        Route("/group/edit", _ask_edit),
        Route("/group/edit", _edit, methods=["POST"]),
        Route("/group/delete", _ask_delete),
        Route("/group/delete", _delete, methods=["POST"]),
    ]
