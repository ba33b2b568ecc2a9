"""Ask an application without a network."""

import asyncio
import re
from typing import Any

import httpx

from calculon.apps.explore.answers import Answers
from calculon.apps.explore.offer import Offer
from calculon.apps.explore.page_state import State
from calculon.apps.explore.part import Part
from calculon.apps.explore.views import KINDS
from tests.store import cache


@cache
def answers() -> Answers:
    """Return answers that tests share: none computes again what another has asked for."""
    return Answers(Offer())


_MADE: dict[tuple[str, str], Part | None] = {}


def made(name: str, state: State) -> Part | None:
    """Return a part of a view; each is made once."""
    key = name, repr(state)
    if key not in _MADE:
        _MADE[key] = KINDS[name].make(state, answers())
    return _MADE[key]


def asked(app, address: str, host: str = "localhost") -> httpx.Response:
    """Return the answer to an address."""
    return asyncio.run(_asked(app, address, host))


def found(app, query: str = "") -> dict[str, Any]:
    """Return what changes of the page once the search is done."""
    while (told := asked(app, f"/parts?{query}").json())["pending"]:
        pass
    return told


def whole(app, query: str = "") -> str:
    """Return all parts of a view in HTML, also those that come later."""
    main = found(app, query)["main"]
    later = re.findall(r'data-later="([^"]+)"', main)
    return main + "".join(asked(app, f"/part/{name}?{query}").json()["html"] for name in later)


async def _asked(app, address: str, host: str) -> httpx.Response:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.get(address, headers={"Host": host})
