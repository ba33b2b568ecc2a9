"""Ask an application without a network."""

import asyncio
import re
from collections.abc import Callable
from html import unescape
from threading import Event
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx

from calculon.explore.allowed_inputs import AllowedInputs
from calculon.explore.answers import Answers
from calculon.explore.page_state import State, read_state
from calculon.explore.request_tracking import Canceled, count_searched
from calculon.explore.view_part import ViewPart
from calculon.explore.views import KINDS
from tests.store import cache, cache_by_repr


@cache
def answers() -> Answers:
    """Return answers that tests share: none computes again what another has asked for."""
    return Answers(AllowedInputs())


@cache_by_repr
def made(name: str, state: State) -> ViewPart | None:
    """Return a part of a view; each is made once."""
    return KINDS[name].make(state, answers())


def words(part: ViewPart) -> str:
    """Return what a part says, without tags and with single blanks."""
    text = re.sub(r"<[^>]*>", " ", f"{part.html} {part.more}")
    return " ".join(unescape(text).split())


def at(address: str) -> State:
    """Return the state of an address of the page."""
    first = State(model="gpt3-13B", system="a100_80g_sxm", procs=64)
    return read_state(parse_qsl(urlsplit(address).query), answers().allowed, first)


def asked(app, address: str, host: str = "localhost", accept: str = "*/*") -> httpx.Response:
    """Return the answer to an address."""
    return asyncio.run(_asked(app, address, {"Host": host, "Accept": accept}))


def found(app, query: str = "") -> dict[str, Any]:
    """Return what changes of the page once the search is done."""
    while (told := asked(app, f"/parts?{query}").json())["pending"]:
        pass
    return told


class SlowSearch:
    """A search that goes on until it is let, or ended."""

    def __init__(self, compute: Callable[..., Any] = lambda: "found"):
        self._compute = compute
        self.begun, self.let, self.ended, self.times = Event(), Event(), Event(), 0

    def __call__(self, *asked: Any) -> Any:
        self.times += 1
        self.begun.set()
        try:
            while not self.let.wait(0.001):
                count_searched(1)
        except Canceled:
            self.ended.set()
            raise
        return self._compute(*asked)


async def _asked(app, address: str, headers: dict[str, str]) -> httpx.Response:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.get(address, headers=headers)
