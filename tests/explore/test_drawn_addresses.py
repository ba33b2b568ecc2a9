"""Random addresses: whatever is asked for, the answer is in order, and no defect is told of.

``scripts/test --large`` draws more of them.
"""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import islice
from threading import Barrier
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx
import pytest

from calculon import explore
from calculon.explore.allowed_inputs import AllowedInputs
from calculon.explore.page_state import ASKED, MACHINE, State, read_state
from calculon.explore.web.page_server import app
from tests.draws import FACTOR, SEED, draws
from tests.explore.asking import answers, asked, found
from tests.explore.drawn_addresses import MARK, QUICK, Addresses
from tests.explore.sound_answers import check, check_html, strict

DRAWN = draws(24)

PATIENCE = 120
"""Seconds for an answer on a busy machine."""

FIRST = State(model="mlp-2x1024", system="a100_80g_sxm", procs=1)


def test_every_answer_is_in_order(capfd):
    site = app(answers(), FIRST, ["localhost"])

    async def ask() -> int:
        transport = httpx.ASGITransport(site)
        understood = 0
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for _, address in zip(
                range(DRAWN),
                Addresses(SEED, quick=QUICK if FACTOR > 1 else QUICK[:2]),
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
    offer, addresses = AllowedInputs(), Addresses(SEED + 1)
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


SECONDS = re.compile(r"(?<=tried in )[\d.]+ \w+")
"""How long a search took."""


def client(address: str, path: str, together: Barrier) -> tuple[int, str]:
    """Ask for a path once the best plan of its question is known, which it may tell of."""
    connection = HTTPConnection(address, timeout=120)
    together.wait()
    for one in (f"/parts?{question(path)}", path):
        while True:
            connection.request("GET", one)
            answer = connection.getresponse()
            text = answer.read().decode()
            if "part-searching" not in text:
                break
    connection.close()
    return answer.status, text


def question(path: str) -> str:
    """Return the question of an address, without a plan and options."""
    pairs = parse_qsl(urlsplit(path).query)
    return urlencode([(name, one) for name, one in pairs if name in ASKED or MACHINE in name])


@pytest.mark.parametrize("clients", [4, pytest.param(50, marks=pytest.mark.large)])
def test_clients_get_what_each_gets_alone(clients):
    drawn = islice(Addresses(7, quick=QUICK[:1]), 200)
    sent = [httpx.URL(path).raw_path.decode() for path in drawn]
    pages = [path for path in sent if path.startswith(("/?", "/part"))]
    paths = [pages[number % len(pages)] for number in range(0, 7 * clients, 7)]
    together = Barrier(clients)
    with (
        explore(FIRST.model, FIRST.system, FIRST.procs) as page,
        ThreadPoolExecutor(clients) as threads,
    ):
        address = urlsplit(page.url).netloc
        waiting = [threads.submit(client, address, path, together) for path in paths]
        told = [one.result() for one in waiting]
    alone = app(answers(), FIRST, ["localhost"])
    for path, (status, text) in zip(paths, told, strict=True):
        found(alone, question(path))
        found(alone, urlsplit(path).query)
        expected = asked(alone, path)
        assert status == expected.status_code, path
        assert SECONDS.sub("", text) == SECONDS.sub("", expected.text), path
