"""The pages of brokers: all of them with their rates, and one with its store and settings."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lockstep.console.chart import flow_charts
from lockstep.console.console import console_of
from lockstep.console.model import BrokerState
from lockstep.console.pages.broker_values import uptime_ms, value_text
from lockstep.console.pages.parameters import text_of
from lockstep.console.pages.questions import answer_of, answers_of
from lockstep.console.render import language_of, render
from lockstep.console.translations.choose import Texts
from lockstep.console.window import window_of

__all__ = ["BrokerRow", "broker_row", "grouped", "routes", "visible_settings"]

# Names of the runtime info by subject, in the order of the page; a subject takes names that begin so.
_SUBJECTS: Final[Mapping[str, tuple[str, ...]]] = {
    "rates": ("putTps", "get", "msgPut", "msgGet", "putMessage", "putLatency"),
    "store": ("commitLog", "consumeQueue", "earliest", "dispatch", "remain", "pageCache", "flush", "runtime"),
    "order": ("locks.", "fence."),
    "delays": ("schedule",),
}
_CHARTS: Final = 8  # brokers with charts on the page of all
# Brokers of RocketMQ 5 have a user's name and password in their settings.
_SECRET: Final = re.compile("password|secret|credential|authenticationuser", re.IGNORECASE)


class BrokerRow(NamedTuple):
    """`put_tps`, `get_tps`: of about the last 10 seconds; `disk`: the used part, 0 to 1; None: it did not say."""

    state: BrokerState
    version: str | None = None
    put_tps: float | None = None
    get_tps: float | None = None
    put_today: int | None = None
    disk: float | None = None
    uptime_ms: int | None = None


def broker_row(state: BrokerState, runtime: Mapping[str, str] | None) -> BrokerRow:
    """
    Args:
        runtime: Its runtime info; None: it did not answer.
    """
    row = BrokerRow(state)
    if runtime is None:
        return row
    put_now, put_morning = _first(runtime, "msgPutTotalTodayNow"), _first(runtime, "msgPutTotalTodayMorning")
    return row._replace(
        version=runtime.get("brokerVersionDesc"),
        put_tps=_first(runtime, "putTps"),
        # RocketMQ 5 spells the name so.
        get_tps=_first(runtime, "getTransferredTps" if "getTransferredTps" in runtime else "getTransferedTps"),
        put_today=None if put_now is None or put_morning is None else int(put_now - put_morning),
        disk=_first(runtime, "commitLogDiskRatio"),
        uptime_ms=uptime_ms(runtime.get("runtime", "")),
    )


def _first(runtime: Mapping[str, str], name: str) -> float | None:
    """The first number of a value: rates have three, of the last 10 s, 1 min and 10 min."""
    try:
        return round(float(runtime[name].split()[0]), 3)
    except (KeyError, IndexError, ValueError):
        return None


def grouped(runtime: Mapping[str, str]) -> dict[str, list[tuple[str, str]]]:
    """The runtime info by subject; "other" has the rest."""
    found: dict[str, list[tuple[str, str]]] = {subject: [] for subject in (*_SUBJECTS, "other")}
    for name, value in sorted(runtime.items()):
        subject = next((one for one, starts in _SUBJECTS.items() if name.startswith(starts)), "other")
        found[subject].append((name, value))
    return {subject: rows for subject, rows in found.items() if rows}


def visible_settings(settings: Mapping[str, str]) -> list[tuple[str, str]]:
    """Sorted by name, without the values of those that are secret."""
    return [(name, "***" if value and _SECRET.search(name) else value) for name, value in sorted(settings.items())]


async def _brokers(request: Request) -> Response:
    console = console_of(request)
    states = console.collector.brokers()
    asked = [state for state in states if state.gone_ms is None]
    answers = await answers_of([console.admin.broker_runtime(state.address) for state in asked])
    known = {state.name: runtime for state, runtime in zip(asked, answers, strict=True)}
    rows = [broker_row(state, known.get(state.name)) for state in states]
    window, texts = window_of(request.query_params, console.runtime.now_ms()), Texts(language_of(request))
    flows = console.collector.flows.brokers
    charts = {state.name: flow_charts(flows.get(state.name), window, texts) for state in states[:_CHARTS]}
    return render(request, "brokers.html", page="brokers", is_live=True, rows=rows, window=window, charts=charts)


async def _broker(request: Request) -> Response:
    console = console_of(request)
    state = console.collector.broker(text_of(request.query_params, "broker"))
    if state is None:
        raise HTTPException(404)
    runtime = settings = None
    if state.gone_ms is None:
        runtime = await answer_of(console.admin.broker_runtime(state.address))
        settings = await answer_of(console.admin.broker_settings(state.address))
    window, texts = window_of(request.query_params, console.runtime.now_ms()), Texts(language_of(request))
    return render(
        request,
        "broker.html",
        page="brokers",
        window=window,
        charts=flow_charts(console.collector.flows.brokers.get(state.name), window, texts),
        row=broker_row(state, runtime),
        runtime=None
        if runtime is None
        else grouped({name: value_text(name, runtime[name], texts) for name in runtime}),
        settings=None if settings is None else visible_settings(settings),
    )


def routes() -> list[Route]:
    return [Route("/brokers", _brokers), Route("/broker", _broker)]
