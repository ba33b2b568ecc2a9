"""Many clients at the same time get what each would get alone."""

import re
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import islice
from threading import Barrier
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx

from calculon import explore
from calculon.apps.explore.answers import Answers
from calculon.apps.explore.offer import Offer
from calculon.apps.explore.page_state import ASKED, MACHINE, State
from calculon.apps.explore.web.page_server import app
from tests.apps.explore.asking import asked, found
from tests.apps.explore.drawn_addresses import QUICK, Addresses

CLIENTS = 50
EACH = 1
"""Addresses that each client asks for."""

SECONDS = re.compile(r"(?<=tried in )[\d.]+ \w+")
"""How long a search took."""

FIRST = ("gpt2-124M", "a100_80g_sxm", 8)


def client(address: str, paths: list[str], together: Barrier) -> list[tuple[int, str]]:
    """Ask for some paths on one connection, each once the best plan of its question is known, which it may tell of."""
    connection = HTTPConnection(address, timeout=120)
    together.wait()
    answers = []
    for path in paths:
        for one in (f"/parts?{question(path)}", path):
            while True:
                connection.request("GET", one)
                answer = connection.getresponse()
                text = answer.read().decode()
                if "part-searching" not in text:
                    break
        answers.append((answer.status, text))
    connection.close()
    return answers


def question(path: str) -> str:
    """Return the question of an address, without a plan and options."""
    pairs = parse_qsl(urlsplit(path).query)
    return urlencode([(name, one) for name, one in pairs if name in ASKED or MACHINE in name])


def test_fifty_clients_get_what_each_gets_alone():
    drawn = islice(Addresses(7, quick=QUICK[:1]), 200)
    sent = [httpx.URL(path).raw_path.decode() for path in drawn]
    pages = [path for path in sent if path.startswith(("/?", "/part"))]
    paths = [pages[number % len(pages)] for number in range(0, 7 * CLIENTS * EACH, 7)]
    mine = [paths[number::CLIENTS] for number in range(CLIENTS)]
    together = Barrier(CLIENTS)
    with explore(*FIRST) as page, ThreadPoolExecutor(CLIENTS) as threads:
        address = urlsplit(page.url).netloc
        clients = [threads.submit(client, address, paths, together) for paths in mine]
        told = [one.result() for one in clients]
    first = State(model=FIRST[0], system=FIRST[1], procs=FIRST[2])
    alone = app(Answers(Offer()), first, ["localhost"])
    for paths, answers in zip(mine, told, strict=True):
        for path, (status, text) in zip(paths, answers, strict=True):
            found(alone, question(path))
            found(alone, urlsplit(path).query)
            expected = asked(alone, path)
            assert status == expected.status_code, path
            assert SECONDS.sub("", text) == SECONDS.sub("", expected.text), path
