"""The page Topics."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lockstep.console.render import render

__all__ = ["routes"]


async def _page(request: Request) -> Response:
    return render(request, "topics.html", page="topics")


def routes() -> list[Route]:
    return [Route("/topics", _page)]
