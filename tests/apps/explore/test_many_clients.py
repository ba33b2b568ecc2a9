"""Many clients at the same time get what each would get alone."""

from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import islice
from threading import Barrier
from urllib.parse import urlsplit

import httpx

from calculon import explore
from calculon.apps.explore.answers import Answers
from calculon.apps.explore.offer import Offer
from calculon.apps.explore.page_server import app
from calculon.apps.explore.page_state import State
from tests.apps.explore.asking import asked, found
from tests.apps.explore.drawn_addresses import QUICK, Addresses

CLIENTS = 50
EACH = 2
"""Addresses that each client asks for."""

FIRST = ("gpt2-124M", "a100_80g_sxm", 8)


def client(address: str, paths: list[str], together: Barrier) -> list[tuple[int, str]]:
    """Ask for some paths on one connection; a page that is searched for is asked for until it stands."""
    connection = HTTPConnection(address, timeout=120)
    together.wait()
    answers = []
    for path in paths:
        while True:
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read().decode()
            if "part-searching" not in text:
                break
        answers.append((answer.status, text))
    connection.close()
    return answers


def test_fifty_clients_get_what_each_gets_alone():
    sent = [
        httpx.URL(path).raw_path.decode() for path in islice(Addresses(7, quick=QUICK[:1]), 200)
    ]
    drawn = [path for path in sent if path.startswith(("/?", "/part"))]
    paths = [drawn[number % len(drawn)] for number in range(0, 7 * CLIENTS * EACH, 7)]
    mine = [paths[number::CLIENTS] for number in range(CLIENTS)]
    together = Barrier(CLIENTS)
    with explore(*FIRST) as page, ThreadPoolExecutor(CLIENTS) as threads:
        address = urlsplit(page.url).netloc
        clients = [threads.submit(client, address, paths, together) for paths in mine]
        told = [one.result() for one in clients]
    alone = app(
        Answers(Offer()), State(model=FIRST[0], system=FIRST[1], procs=FIRST[2]), ["localhost"]
    )
    for paths, answers in zip(mine, told, strict=True):
        for path, (status, text) in zip(paths, answers, strict=True):
            found(alone, path.partition("?")[2])
            expected = asked(alone, path)
            assert status == expected.status_code, path
            assert text == expected.text, path
