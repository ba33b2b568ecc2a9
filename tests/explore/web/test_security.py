"""Who may ask, and what a browser may do with the answer."""

import socket

import pytest
from starlette.responses import PlainTextResponse

from calculon.explore.web.security import (
    HEADERS,
    LONGEST_ADDRESS,
    SecurityMiddleware,
    is_loopback,
    names_of,
)
from tests.explore.asking import asked

APP = PlainTextResponse("inside")


def guard(host: str = "127.0.0.1") -> SecurityMiddleware:
    return SecurityMiddleware(APP, names_of(host))


def test_names_and_numbers_of_this_machine_are_answered():
    hosts = ["127.0.0.1", "127.0.0.1:8765", "localhost", "LOCALHOST:1", "localhost.:80"]
    hosts += ["[::1]", "[::1]:8765", "192.168.0.7:8765"]
    assert [host for host in hosts if not guard().answers(host)] == []


@pytest.mark.parametrize("listening", ["127.0.0.1", "0.0.0.0"])
def test_names_of_others_are_not(listening):
    hosts = ["", " ", "example.com", "localhost.example.com", "127.0.0.1.example.com", "a\r\nb"]
    hosts += ["localhost:port", "[::1", "::1", "user@localhost", "localhost/x", "127.0.0.1:1:2"]
    assert [host for host in hosts if guard(listening).answers(host)] == []


def test_a_server_for_the_network_is_asked_for_by_the_names_of_its_machine_and_the_one_given():
    for name in (socket.gethostname(), socket.getfqdn(), socket.gethostname() + ":8765"):
        assert guard("0.0.0.0").answers(name)
    assert guard("box.lab.example").answers("BOX.lab.example:80")


def test_a_refused_name_learns_nothing():
    answer = asked(guard(), "/", host="example.com")
    assert answer.status_code == 400
    assert "inside" not in answer.text


def test_every_answer_says_what_a_browser_may_do_with_it():
    for address, host in (
        ("/", "localhost"),
        ("/", "example.com"),
        ("/?" + "x" * 9_000, "localhost"),
    ):
        headers = asked(guard(), address, host=host).headers
        assert all(headers[name] == value for name, value in HEADERS.items())
    assert "unsafe" not in HEADERS["Content-Security-Policy"].split("style-src")[0]


def test_addresses_have_a_length():
    longest = "/?" + "x" * (LONGEST_ADDRESS - 1)
    assert asked(guard(), longest).status_code == 200
    assert asked(guard(), longest + "x").status_code == 414


def test_only_loopback_is_of_this_machine_alone():
    own = ["127.0.0.1", "127.8.0.1", "::1", "localhost"]
    others = ["0.0.0.0", "::", "10.0.0.1", "box.lab.example"]
    assert [host for host in (*own, *others) if is_loopback(host)] == own
