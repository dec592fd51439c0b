"""The page Doctor: what the rules of `lockstep doctor` find. The look runs beside the pages, one at a time."""

import asyncio
from dataclasses import dataclass
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lockstep.client.diagnosis.gather import gather
from lockstep.client.diagnosis.rules import RULES, Finding, Severity, examine
from lockstep.client.errors import ClientError
from lockstep.console.console import Console, console_of
from lockstep.console.pages.parameters import text_of
from lockstep.console.render import query_url, redirect, render
from lockstep.protocol.errors import ProtocolError
from lockstep.protocol.names import check_group
from lockstep.remoting.errors import RemotingError

__all__ = ["Desk", "Examination", "routes"]

_PATIENCE_S: Final = 60.0
_KEPT: Final = 64  # examinations, of the groups that were asked for last


class Examination(NamedTuple):
    """
    Args:
        at_ms: When it ended, epoch ms.
        groups_count: That had members or offsets.
        error: Why there is no finding to show; "" after an examination.
    """

    at_ms: int
    findings: tuple[Finding, ...] = ()
    groups_count: int = 0
    error: str = ""

    @property
    def breaking_count(self) -> int:
        return sum(finding.severity is Severity.BREAKS_ORDER for finding in self.findings)


@dataclass
class Desk:
    """The last examination of each group that was asked for ("": of all), and the one that runs."""

    console: Console

    def __post_init__(self) -> None:
        self.done: dict[str, Examination] = {}
        self.running: str | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, group: str) -> None:
        """Look at a group, "" for all, unless a look is under way; the open pages are told when it ends."""
        if self.running is None:
            self.running = group
            self._task = self.console.runtime.create_task(self._examine(group), name="doctor")

    async def _examine(self, group: str) -> None:
        runtime = self.console.runtime
        try:
            async with asyncio.timeout(_PATIENCE_S):
                facts = await gather(self.console.admin, runtime, group or None)
            known = [one for one in facts.groups if one.members or one.queues]
            done = Examination(runtime.now_ms(), tuple(examine(facts)), len(known))
        except TimeoutError:
            done = Examination(runtime.now_ms(), error=f"no end within {_PATIENCE_S:.0f} s")
        except (ClientError, ProtocolError, RemotingError) as error:
            done = Examination(runtime.now_ms(), error=str(error))
        except Exception as error:  # an error of ours: shown, or each refresh of the page would look again
            done = Examination(runtime.now_ms(), error=f"{type(error).__name__}: {error}")
        finally:
            self.running = None
        self.done.pop(group, None)
        self.done[group] = done
        if len(self.done) > _KEPT:
            del self.done[next(iter(self.done))]
        self.console.feed.publish()


def _desk(request: Request) -> Desk:
    state = request.app.state
    if not hasattr(state, "desk"):
        state.desk = Desk(console_of(request))
    desk: Desk = state.desk
    return desk


async def _doctor(request: Request) -> Response:
    desk, group = _desk(request), text_of(request.query_params, "group")
    if group:
        check_group(group)
    if group not in desk.done:
        desk.begin(group)
    done = desk.done.get(group)
    groups = sorted(desk.console.collector.groups)
    return render(
        request, "doctor.html", page="doctor", is_live=True, group=group, groups=groups, done=done,
        is_running=desk.running is not None, rules_count=len(RULES), breaks=Severity.BREAKS_ORDER,
    )  # fmt: skip


async def _again(request: Request) -> Response:
    """A form: look again, and show the page."""
    desk, group = _desk(request), text_of(request.query_params, "group")
    if group:
        check_group(group)
    desk.begin(group)
    return redirect(request, query_url("/doctor", {"group": group}))


def routes() -> list[Route]:
    return [Route("/doctor", _doctor), Route("/doctor", _again, methods=["POST"])]
