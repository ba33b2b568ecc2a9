"""The page from Python: served in the background, closed again, shown in a notebook."""

import re
import socket
import threading
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

import calculon
from calculon.base.errors import SpecError
from calculon.explore.web import patience

ASKED = ("mlp-2x1024", "a100_80g_sxm", 4)


def port_of(page):
    return int(re.match(r"http://127\.0\.0\.1:(\d+)/", page.url)[1])


def read(page, path=""):
    with urlopen(page.url if not path else f"http://127.0.0.1:{port_of(page)}{path}") as answer:
        return answer.read().decode()


def test_two_pages_are_served_at_a_time_each_what_it_was_asked():
    with calculon.explore(*ASKED) as one, calculon.explore(*ASKED[:2], "1k", view="machine") as two:
        assert port_of(one) != port_of(two)
        assert "procs=4" in one.url
        assert two.url.endswith("?model=mlp-2x1024&system=a100_80g_sxm&procs=1024&view=machine")
        assert "mlp-2x1024 on 4 x a100_80g_sxm" in read(one)
        assert "mlp-2x1024 on 1,024 x a100_80g_sxm" in read(two)


def test_a_plan_of_ones_own_is_shown():
    for mine in ("tp=1 pp=2 mbs=2", {"tensor_par": 1, "pipeline_par": 2, "microbatch_size": 2}):
        with calculon.explore(*ASKED, mine=mine) as page:
            assert "tensor_par=1&pipeline_par=2&microbatch_size=2" in page.url


def test_a_closed_page_frees_its_port_and_its_thread():
    before = {*threading.enumerate()}
    page = calculon.explore(*ASKED)
    port = port_of(page)
    with pytest.raises(SpecError, match="free port"):
        calculon.explore(*ASKED, port=port)
    page.close()
    page.close()
    assert page.closed
    assert {*threading.enumerate()} <= before
    with pytest.raises(URLError):
        urlopen(page.url)
    with calculon.explore(*ASKED, port=port) as again:
        assert again.url == page.url


def test_connections_without_a_complete_request_are_closed(monkeypatch):
    monkeypatch.setattr(patience, "HEADERS", 0.3)
    with calculon.explore(*ASKED) as page:
        idle = [socket.create_connection(("127.0.0.1", port_of(page))) for _ in range(20)]
        for one in idle[:10]:
            one.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        for one in idle:
            one.settimeout(10)
            assert one.recv(1) == b""
            one.close()
        assert ASKED[0] in read(page)  # which takes longer


def test_connections_beyond_the_limit_are_refused(monkeypatch):
    monkeypatch.setattr(patience, "MAX_CONNECTIONS", 5)
    with calculon.explore(*ASKED) as page:
        idle = [socket.create_connection(("127.0.0.1", port_of(page))) for _ in range(5)]
        with pytest.raises(HTTPError, match="503"):
            read(page)
        for one in idle:
            one.close()


def test_a_notebook_shows_the_page_until_it_is_closed():
    with calculon.explore(*ASKED) as page:
        html = page._repr_html_()
        address = page.url.replace("&", "&amp;")
        assert f'<iframe src="{address}"' in html
        assert f'<a href="{address}"' in html
        with urlopen(page.url) as answer:
            allowed = answer.headers["Content-Security-Policy"].partition("frame-ancestors")[2]
        assert "http://localhost:*" in allowed
    assert "iframe" not in page._repr_html_()


def test_nonsense_is_told():
    for arguments, words, message in [
        (("llama3-9B",), {}, "llama3-9B"),
        ((*ASKED[:2], "many"), {}, "processors"),
        (ASKED, {"batches": 5}, "batches"),
        (ASKED, {"port": 70_000}, "port"),
        (ASKED, {"mine": "tq=4"}, "tq"),
    ]:
        with pytest.raises(SpecError, match=message):
            calculon.explore(*arguments, **words)
