"""The server of the page: one address for the page, one for what changes of it, one for each part that takes longer."""

import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from calculon.apps.explore.answers import Answers, listen, telling
from calculon.apps.explore.controls import controls, settled
from calculon.apps.explore.page_state import CHANGED, VIEWS, State, read_state
from calculon.apps.explore.part import ASSETS, Part, PartKind, html
from calculon.apps.explore.views import KINDS, PARTS
from calculon.errors import CalculonError

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""What a browser may do with an answer: load scripts and styles from here alone."""

LONGEST_QUERY = 8_000
"""Characters of an address."""

_TYPES = {
    "explore.css": "text/css",
    "charts.js": "text/javascript",
    "explore.js": "text/javascript",
    "morph.js": "text/javascript",
    "plotly.min.js": "text/javascript",
}


class Site:
    """Answers requests.

    Parameters
    ----------
    answers : Answers
        What computes.
    first : State
        What an empty address shows.
    """

    def __init__(self, answers: Answers, first: State):
        self._answers, self._first = answers, first

    def page(self, request: Request) -> Response:
        """Return the whole page."""
        content, code = self._content(request)
        content["title"] = f"{content['title']} - calculon"
        return HTMLResponse(html("page.html", **content), code)

    def parts(self, request: Request) -> Response:
        """Return what a change of the state changes of the page."""
        content, code = self._content(request)
        told = {"controls": content["controls"], "tabs": html("tabs.html", **content)}
        told |= {"main": html("parts.html", **content), "query": content["query"]}
        told |= {"title": f"{content['title']} - calculon"}
        return JSONResponse(told, code)

    def part(self, request: Request) -> Response:
        """Return one part."""
        kind = KINDS.get(request.path_params["name"])
        if kind is None:
            return PlainTextResponse("no such part", 404)
        try:
            state = self._state(request)
            part = self._made(kind, state)
        except CalculonError as error:
            part = _failed(kind, error)
        told = "" if part is None else html("part.html", name=kind.name, part=part)
        return JSONResponse({"name": kind.name, "html": told})

    def asset(self, request: Request) -> Response:
        """Return a script or a style: one of a closed list."""
        name = request.path_params["name"]
        if name not in _TYPES:
            return PlainTextResponse("no such file", 404)
        headers = {
            "Cache-Control": "public, max-age=3600" if name == "plotly.min.js" else "no-cache"
        }
        return Response(_asset(name), media_type=_TYPES[name], headers=headers)

    def _state(self, request: Request) -> State:
        pairs = request.query_params.multi_items()
        state = read_state(
            [pair for pair in pairs if pair[0] != CHANGED], self._answers.offer, self._first
        )
        changed = request.query_params.get(CHANGED, "")
        return settled(state, self._answers, changed) if changed else state

    def _content(self, request: Request) -> tuple[dict[str, Any], int]:
        """Return what the templates of the page take, and the status."""
        try:
            state = self._state(request)
            shown = {"controls": controls(state, self._answers)}
            made = [(kind, self._made(kind, state)) for kind in PARTS[state.view] if not kind.later]
        except CalculonError as error:
            return self._misunderstood(error), 400
        tabs = [(view, state.link(view=view)) for view in VIEWS]
        content = {
            **shown,
            "title": f"{state.model} on {state.procs:,} x {state.system}",
            "tabs": tabs,
            "view": state.view,
            "query": state.query,
            "problem": [],
            "parts": [(kind.name, part) for kind, part in made if part is not None],
            "later": [kind for kind in PARTS[state.view] if kind.later],
        }
        return content, 200

    def _misunderstood(self, error: CalculonError) -> dict[str, Any]:
        """Return the page of an address that means nothing: the message, and controls of the first page."""
        first = self._first
        return {
            "controls": controls(first, self._answers),
            "title": "Not understood",
            "tabs": [(view, first.link(view=view)) for view in VIEWS],
            "view": "",
            "query": first.query,
            "problem": str(error).splitlines(),
            "parts": [],
            "later": [],
        }

    def _made(self, kind: PartKind, state: State) -> Part | None:
        with telling():
            return kind.make(state, self._answers)


def _failed(kind: PartKind, error: CalculonError) -> Part:
    return Part(title=kind.title, html=html("failed.html", lines=str(error).splitlines()))


def _asset(name: str) -> bytes:
    folder = files("plotly") / "package_data" if name.startswith("plotly") else files(ASSETS)
    return folder.joinpath(name).read_bytes()


def app(answers: Answers, first: State, hosts: Sequence[str]) -> Starlette:
    """Return the application.

    Parameters
    ----------
    answers, first
        As of :class:`Site`.
    hosts : sequence of str
        Names by which it may be asked for; a page elsewhere cannot reach it by another.
    """
    listen()
    site = Site(answers, first)
    routes = [
        Route("/", _guarded(site.page)),
        Route("/parts", _guarded(site.parts)),
        Route("/part/{name}", _guarded(site.part)),
        Route("/assets/{name}", site.asset),
    ]
    middleware = [Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))]
    return Starlette(routes=routes, middleware=middleware)


def _guarded(endpoint: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """Return an endpoint whose answers carry :data:`HEADERS`, and whose defects are told in the terminal alone."""

    def guarded(request: Request) -> Response:
        if len(request.url.query) > LONGEST_QUERY:
            answer: Response = PlainTextResponse("the address is too long", 414)
        else:
            try:
                answer = endpoint(request)
            except Exception:
                traceback.print_exc(file=sys.stderr)
                answer = PlainTextResponse(
                    "a defect of calculon; the terminal has the details", 500
                )
        for name, value in HEADERS.items():
            answer.headers.setdefault(name, value)
        return answer

    return guarded
