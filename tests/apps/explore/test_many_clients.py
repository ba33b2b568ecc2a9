"""Many clients at the same time get what each would get alone."""

import re
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import islice
from threading import Barrier
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx
import pytest

from calculon import explore
from calculon.apps.explore.answers import Answers
from calculon.apps.explore.offer import Offer
from calculon.apps.explore.page_state import ASKED, MACHINE, State
from calculon.apps.explore.web.page_server import app
from tests.apps.explore.asking import asked, found
from tests.apps.explore.drawn_addresses import QUICK, Addresses

SECONDS = re.compile(r"(?<=tried in )[\d.]+ \w+")
"""How long a search took."""

FIRST = ("gpt2-124M", "a100_80g_sxm", 8)


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


@pytest.mark.parametrize("clients", [8, pytest.param(50, marks=pytest.mark.large)])
def test_clients_get_what_each_gets_alone(clients):
    drawn = islice(Addresses(7, quick=QUICK[:1]), 200)
    sent = [httpx.URL(path).raw_path.decode() for path in drawn]
    pages = [path for path in sent if path.startswith(("/?", "/part"))]
    paths = [pages[number % len(pages)] for number in range(0, 7 * clients, 7)]
    together = Barrier(clients)
    with explore(*FIRST) as page, ThreadPoolExecutor(clients) as threads:
        address = urlsplit(page.url).netloc
        waiting = [threads.submit(client, address, path, together) for path in paths]
        told = [one.result() for one in waiting]
    first = State(model=FIRST[0], system=FIRST[1], procs=FIRST[2])
    alone = app(Answers(Offer()), first, ["localhost"])
    for path, (status, text) in zip(paths, told, strict=True):
        found(alone, question(path))
        found(alone, urlsplit(path).query)
        expected = asked(alone, path)
        assert status == expected.status_code, path
        assert SECONDS.sub("", text) == SECONDS.sub("", expected.text), path
