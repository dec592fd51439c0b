"""The lessons for the page: their texts in the reader's language, and whether that what one says has happened."""

from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lockstep.console.render import language_of
from lockstep.simulation.play.lessons.registry import LESSONS
from lockstep.simulation.play.lessons.words import WORDS

__all__ = ["LESSON_ROUTES"]

_FRESH: Final = {"Cache-Control": "no-store", "Vary": "Accept-Language, Cookie"}


async def _all(request: Request) -> Response:
    language = language_of(request)
    words = {key: getattr(text, language) for key, text in WORDS.items()}
    lessons = [lesson.row(language) for lesson in LESSONS.values()]
    return JSONResponse({"words": words, "lessons": lessons}, headers=_FRESH)


async def _shown(request: Request) -> Response:
    lesson = LESSONS.get(request.path_params["key"])
    if lesson is None:
        raise HTTPException(404)
    await request.app.state.session.judged()
    async for scene in request.app.state.session.scenes():  # the first one has the whole story
        return JSONResponse({"shown": lesson.is_shown(scene)}, headers=_FRESH)
    raise HTTPException(503)


LESSON_ROUTES: Final = (Route("/lessons", _all), Route("/lessons/{key}", _shown))
