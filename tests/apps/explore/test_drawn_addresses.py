"""Random addresses: whatever is asked for, the answer is in order, and no defect is told of.

``scripts/test --large`` draws more of them.
"""

import asyncio
from urllib.parse import parse_qsl

import httpx
import pytest

from calculon.apps.explore.offer import Offer
from calculon.apps.explore.page_state import State, read_state
from calculon.apps.explore.web.page_server import app
from tests.apps.explore.asking import answers
from tests.apps.explore.drawn_addresses import MARK, QUICK, Addresses
from tests.apps.explore.sound_answers import check, check_html, strict
from tests.draws import FACTOR, SEED, draws

DRAWN = draws(40)

PATIENCE = 120
"""Seconds for an answer on a busy machine."""

FIRST = State(model="llama3-8B", system="h100_80g_sxm", procs=8)


def test_every_answer_is_in_order(capfd):
    site = app(answers(), FIRST, ["localhost"])

    async def ask() -> int:
        transport = httpx.ASGITransport(site)
        understood = 0
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for _, address in zip(
                range(DRAWN),
                Addresses(SEED, quick=QUICK if FACTOR > 1 else QUICK[:1]),
                strict=False,
            ):
                try:
                    answer = await asyncio.wait_for(client.get(address), PATIENCE)
                    check(answer)
                except Exception as error:
                    error.add_note(f"seed {SEED}: {address}")
                    raise
                understood += answer.status_code == 200
        return understood

    understood = asyncio.run(ask())
    assert 0.2 < understood / DRAWN < 0.9  # neither nonsense alone nor sense alone
    assert capfd.readouterr().err == ""


def test_a_state_that_is_understood_is_the_same_when_its_own_address_is_read():
    offer, addresses = Offer(), Addresses(SEED + 1)
    read = 0
    while read < DRAWN:
        try:
            state = read_state(addresses.pairs(), offer, FIRST)
        except ValueError:
            continue
        again = read_state(parse_qsl(state.query), offer, FIRST)
        assert again == state
        read += 1


def test_what_is_not_in_order_is_noticed():
    for text in (
        "<p>",
        "</p>",
        "<p><b></p></b>",
        f"<script>{MARK}()</script>",
        f"<p onclick='{MARK}()'></p>",
        f'<a href="javascript:{MARK}()">x</a>',
        f'<p title="a" {MARK}="b"></p>',
        '<div data-figure="{&quot;data&quot;: [NaN]}"></div>',
    ):
        with pytest.raises(AssertionError):
            check_html(text)
    with pytest.raises(AssertionError, match="Infinity"):
        strict("[Infinity]")
