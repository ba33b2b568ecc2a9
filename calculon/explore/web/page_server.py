"""Web application of the page: addresses for the page, for its changes, and for each slow part."""

import asyncio
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.resources import files
from time import perf_counter
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from calculon.base.errors import CalculonError, SpecError
from calculon.declarations.spellings import PRECISIONS
from calculon.explore.allowed_inputs import MODEL, SYSTEM
from calculon.explore.answers import Answers, PendingAnswers, collect_warnings, route_warnings
from calculon.explore.controls import adjusted_state, controls
from calculon.explore.exports.exports import written
from calculon.explore.labels import label
from calculon.explore.page_state import CHANGED, LONGEST, State, read_good, read_state
from calculon.explore.request_tracking import Canceled, PageRequest, Pending, under_way
from calculon.explore.view_names import SERVING, VIEWS
from calculon.explore.view_part import ASSETS, ViewPart, ViewPartKind, html
from calculon.explore.views import KINDS, PARTS
from calculon.explore.web.security import SecurityMiddleware

PATIENCE = 0.2
"""Seconds that the page waits for a search before it shows partial results and polls."""

QUICK, LONG = 8, 16
"""Threads for quick requests of the page, and for slow parts; separate, so that slow parts never block the page."""

MAX_MENDS = 6
"""Maximum number of suggestions for an ambiguous name."""

_LABELS = {
    "model": "Model",
    "system": "System",
    "procs": "Processors",
    "preset": "Framework",
    "batch": "Batch",
    "seq": "Sequence",
    "dtype": "Precision",
    "datatype": "Precision",
    "tokens": "Training tokens",
    "view": "View",
    "objective": "Objective",
    "where": "Only plans with",
    "fix": "Fixed values",
    "open": "Try more values of these fields",
    "workload": "Workload",
    "counts": "Processor counts to compare",
    "x": "Horizontal axis",
    "y": "Vertical axis",
}
"""Labels of parts of the question and of search options on the page."""

_TYPES = {
    "explore.css": "text/css",
    "charts.js": "text/javascript",
    "explore.js": "text/javascript",
    "morph.js": "text/javascript",
    "plotly.min.js": "text/javascript",
}


class Site:
    """Request handlers of the page.

    Args:
        answers: Cached results.
        first: State for an empty address.
    """

    def __init__(self, answers: Answers, first: State):
        self._answers, self._first = answers, first
        self._unsearched = PendingAnswers(answers.allowed)

    def page(self, request: Request) -> Response:
        """Return the whole page."""
        content, code = self._content(request)
        content["title"] = f"{content['title']} - calculon"
        return HTMLResponse(html("page.html", **content), code)

    def parts(self, request: Request) -> Response:
        """Return the parts of the page that a change of state affects; an invalid state keeps its controls."""
        content, code = self._content(request)
        response: dict[str, Any] = {"tabs": html("tabs.html", **content)}
        response |= {"controls": content["controls"], "main": html("parts.html", **content)}
        response |= {"query": content["query"], "pending": content["pending"] is not None}
        response |= {"title": f"{content['title']} - calculon"}
        return JSONResponse(response, code)

    def part(self, request: Request) -> Response:
        """Return one part as JSON; as a page if a browser follows a link to it."""
        kind = KINDS.get(request.path_params["name"])
        if kind is None:
            return PlainTextResponse("no such part", 404)
        try:
            state = self._state(request)
            with collect_warnings():  # the page itself shows the warnings
                part = kind.make(state, self._answers)
        except CalculonError as error:
            part = _failed(kind, error)
        if "text/html" in request.headers.get("Accept", ""):
            back = f"/?{urlencode(_said(request))}"
            alone = html("part_page.html", title=kind.title, name=kind.name, part=part, back=back)
            return HTMLResponse(alone)
        part_html = "" if part is None else html("part.html", name=kind.name, part=part)
        return JSONResponse({"name": kind.name, "html": part_html})

    def export(self, request: Request) -> Response:
        """Return an export file of the page."""
        began = perf_counter()
        try:
            found = written(request.path_params["name"], self._state(request), self._answers)
        except CalculonError as error:
            return PlainTextResponse(str(error), 400)
        finally:
            self._answers.cache.tidy(perf_counter() - began)
        headers = {"Content-Disposition": f'attachment; filename="{found.name}"'}
        return Response(found.text, media_type=found.media_type, headers=headers)

    def asset(self, request: Request) -> Response:
        """Return a script or style from a fixed list."""
        name = request.path_params["name"]
        if name not in _TYPES:
            return PlainTextResponse("no such file", 404)
        headers = {
            # Plotly is large and changes only with its version; the page's own assets are revalidated.
            "Cache-Control": "public, max-age=3600" if name == "plotly.min.js" else "no-cache"
        }
        return Response(_asset(name), media_type=_TYPES[name], headers=headers)

    def _asked(self, request: Request) -> State:
        """Return the state of the address."""
        return read_state(_said(request), self._answers.allowed, self._first)

    def _state(self, request: Request) -> State:
        """Return the state of the address after a control has changed."""
        changed = request.query_params.get(CHANGED, "")
        state = self._asked(request)
        return adjusted_state(state, self._answers, changed) if changed else state

    def _content(self, request: Request) -> tuple[dict[str, Any], int]:
        """Return the values of the page's templates, including warnings, and the HTTP status."""
        with collect_warnings() as warned:
            content, code = self._understood(request)
        content["warned"] = warned
        return content, code

    def _understood(self, request: Request) -> tuple[dict[str, Any], int]:
        """Return the values of the page's templates without warnings, and the HTTP status."""
        try:
            state = self._asked(request)
            try:
                state = self._state(request)
                return self._shown(state), 200
            except Pending as pending:
                return self._searching(state, pending), 200
        except CalculonError as error:
            return self._misunderstood(error, request), 400

    def _shown(self, state: State) -> dict[str, Any]:
        """Return the page of a state, with placeholders for slow parts."""
        content = self._frame(state, controls(state, self._answers))
        self._fill(content, state)
        return content

    def _fill(self, content: dict[str, Any], state: State) -> None:
        """Add the quick parts to a page, and placeholders for the slow ones."""
        for kind in PARTS[state.view]:
            try:
                part = None if kind.later else kind.make(state, self._answers)
            except Pending:
                content["parts"].append((kind, None))
                continue
            if part is not None or kind.later:
                content["parts"].append((kind, part))

    def _searching(self, state: State, pending: Pending) -> dict[str, Any]:
        """Return the page during the search for the best plan, with the parts that do not need it."""
        unknown = self._unsearched
        content = self._frame(state, controls(state, unknown))
        self._fill(content, state)
        if not any(part for _, part in content["parts"]):
            content["parts"] = []
        content["pending"] = self._progress(state, pending)
        return content

    def _progress(self, state: State, pending: Pending) -> dict[str, Any]:
        """Return the subject and the progress of the search."""
        if state.view == SERVING:
            return {"what": "deployment", "total": 0, "note": "Trying deployments ..."}
        try:
            total = self._answers.executions(state)
        except Pending:
            total = 0
        looked_at = min(pending.looked_at, total)
        counting = "Counting the plans ..."
        return {"what": "plan", "total": total, "looked_at": looked_at, "note": counting}

    def _frame(self, state: State, controls_html: str) -> dict[str, Any]:
        """Return a page with controls and without parts."""
        return {
            "controls": controls_html,
            "title": f"{state.model} on {state.procs:,} x {state.system}",
            "tabs": [(view, state.link(view=view)) for view in VIEWS],
            "view": state.view,
            "query": state.query,
            "problem": [],
            "mends": [],
            "pending": None,
            "parts": [],
        }

    def _misunderstood(self, error: CalculonError, request: Request) -> dict[str, Any]:
        """Return the page of an invalid address: the message, and everything that can be understood."""
        said, offer = _said(request), self._answers.allowed
        state, problems = read_good(said, offer, self._first)
        wrong = {name: text.strip()[:LONGEST] for name, text in said if name in problems}
        controls_html = self._likely_controls(state, wrong)
        kinds = tuple(name for name in (MODEL, SYSTEM) if name in problems)
        meant = {name: offer.meant(name, wrong[name])[:MAX_MENDS] for name in kinds}
        mends = [(one, state.link(**{name: one})) for name in meant for one in meant[name]]
        lines = in_words(error, [name for name in meant if meant[name]])
        if not problems and (others := self._precisions(state)):
            lines = [
                f"{state.system} has no rate of {state.dtype or 'bf16'}. It has: {', '.join(others)}."
            ]
            mends = [(f"Precision {one}", state.link(dtype=one)) for one in others]
        return {
            **self._frame(state, controls_html),
            "title": "Not understood",
            "view": "",
            "query": urlencode(said),
            "problem": lines,
            "mends": mends,
        }

    def _likely_controls(self, state: State, wrong: Mapping[str, str]) -> Markup:
        """Return the controls of a state that may have no valid question, before any plan is known."""
        bare = State(model=state.model, system=state.system, procs=state.procs, view=state.view)
        # A precision that the machine lacks is the usual reason for an invalid question, so try all others.
        for likely in (state, *(replace(bare, dtype=one) for one in ("", *PRECISIONS))):
            try:
                return controls(state, self._unsearched, likely, wrong)
            except CalculonError:
                continue
        return controls(self._first, self._unsearched)

    def _precisions(self, state: State) -> list[str]:
        """Return the precisions of the state's machine if it lacks the one of the question."""
        try:
            known = self._answers.system(state).datatypes
        except CalculonError:
            return []
        found = [name for name, kind in PRECISIONS.items() if kind["datatype"] in known]
        return [] if (state.dtype or "bf16") in found else found


def _said(request: Request) -> list[tuple[str, str]]:
    """Return names and values of an address, without the word for the changed control."""
    return [pair for pair in request.query_params.multi_items() if pair[0] != CHANGED]


def in_words(error: CalculonError, linked: Collection[str] = ()) -> list[str]:
    """Return the lines of an error with labels of the page in place of command names.

    Hints are omitted for fields whose likely values are shown as links.
    """
    lines = str(error).splitlines()
    if not isinstance(error, SpecError):
        return lines
    for i, (line, one) in enumerate(zip(lines, error.problems, strict=False)):
        place = f"{error.file}: {one.field}".removesuffix(": ")
        control = error.file.lstrip("-")
        if control in _LABELS and one.field and line.startswith(place):
            lines[i] = f"{_LABELS[control]}: {one.field}{line.removeprefix(place)}"
            continue
        name = one.field or control
        if name and line.startswith(place):
            text = line.partition(" Hint: ")[0] if name in linked else line
            lines[i] = f"{_LABELS.get(name, label(name))}{text.removeprefix(place)}"
    return lines


def _failed(kind: ViewPartKind, error: CalculonError) -> ViewPart:
    return ViewPart(title=kind.title, blocks=(*str(error).splitlines(),))


def _asset(name: str) -> bytes:
    folder = files("plotly") / "package_data" if name.startswith("plotly") else files(ASSETS)
    return folder.joinpath(name).read_bytes()


def app(
    answers: Answers, first: State, names: Collection[str], frames: Collection[str] = ()
) -> Starlette:
    """Return the ASGI application.

    Args:
        answers, first: As in :class:`Site`.
        names, frames: As in :class:`~calculon.explore.web.security.SecurityMiddleware`.
    """
    route_warnings()
    site = Site(answers, first)
    quick, long = ThreadPoolExecutor(QUICK, "quick"), ThreadPoolExecutor(LONG, "long")
    routes = [
        Route("/", _answered(site.page, quick, PATIENCE)),
        Route("/parts", _answered(site.parts, quick, PATIENCE)),
        Route("/part/{name}", _answered(site.part, long)),
        Route("/export/{name}", _answered(site.export, long)),
        Route("/assets/{name}", _answered(site.asset, quick)),
    ]

    @asynccontextmanager
    async def running(_: Starlette) -> AsyncIterator[None]:
        yield
        for threads in (quick, long):
            threads.shutdown(wait=False, cancel_futures=True)

    security = Middleware(SecurityMiddleware, names=names, frames=frames)
    result = Starlette(routes=routes, middleware=[security], lifespan=running)
    result.router.redirect_slashes = False
    return result


def _answered(
    make: Callable[[Request], Response], threads: Executor, patience: float | None = None
) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that computes in threads, and stops waiting when the client disconnects."""

    async def endpoint(request: Request) -> Response:
        visit = PageRequest(patience)
        # Watch for a disconnect during the computation, so that abandoned work is canceled.
        answer = asyncio.get_running_loop().run_in_executor(threads, _made, make, request, visit)
        left = asyncio.ensure_future(_left(request))
        try:
            await asyncio.wait((answer, left), return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else _NOBODY
        finally:
            visit.left = True
            left.cancel()
            answer.cancel()

    return endpoint


_NOBODY = Response(status_code=204)
"""Response after a disconnect, which nobody reads."""


async def _left(request: Request) -> None:
    """Return when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _made(make: Callable[[Request], Response], request: Request, visit: PageRequest) -> Response:
    """Return the response to a request; details of defects appear only in the terminal."""
    visit.begin()
    try:
        with under_way(visit):
            return make(request)
    except Canceled:
        return _NOBODY
    except MemoryError:
        return PlainTextResponse("not enough memory: request fewer results at once", 503)
    except Exception:
        traceback.print_exc(file=sys.stderr)
        return PlainTextResponse("a defect of calculon; the terminal has the details", 500)
