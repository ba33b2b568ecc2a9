"""What every answer of the page is: of a known status, in order, and without a word of anybody else's."""

import json
from html.parser import HTMLParser
from typing import Any

import httpx

from tests.apps.explore.drawn_addresses import MARK

STATUSES = (200, 400, 404, 414)

VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}

NEVER = ("Traceback (most", "root:x:0", "[build-system]", "# calculon\n")
"""Texts of files, and of defects."""


def check(answer: httpx.Response) -> None:
    """Fail where an answer is not as it should be."""
    assert answer.status_code in STATUSES, answer.text[:300]
    kind = answer.headers.get("Content-Type", "").partition(";")[0]
    text = answer.text
    assert not any(one in text for one in NEVER)
    assert "\n" not in str(answer.headers.get("Content-Disposition", ""))
    if kind == "application/json":
        told = strict(text)
        if {"main", "tabs"} <= {*told}:
            for name in ("main", "tabs", "controls"):
                check_html(told[name] or "")
        elif "html" in told:
            check_html(told["html"])
    elif kind == "text/html":
        check_html(text, "attachment" in answer.headers.get("Content-Disposition", ""))


def strict(text: str) -> Any:
    """Return what JSON says; numbers that it has no words for are errors."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} in JSON")

    return json.loads(text, parse_constant=refuse)


def check_html(text: str, alone: bool = False) -> None:
    """Fail where HTML is not well-formed, or has a script of its own, unless it stands alone, or a handler."""
    checker = _Checker(alone)
    checker.feed(text)
    checker.close()
    assert not checker.open, f"not closed: {checker.open}"


class _Checker(HTMLParser):
    def __init__(self, alone: bool) -> None:
        super().__init__()
        self._alone = alone
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        values = dict(attrs)
        assert len(values) == len(attrs), f"{tag} has an attribute twice: {attrs}"
        assert tag not in ("iframe", "object", "embed", "base"), tag
        own = (values.get("src") or "").startswith("/assets/")
        assert tag != "script" or own or (self._alone and "src" not in values), attrs
        for name, value in values.items():
            assert not name.startswith("on"), (tag, name)
            assert MARK not in name
            if name in ("href", "src", "action"):
                assert (value or "").startswith(("/", "#", "data:,", "https://")), (tag, value)
            if name == "data-figure":
                strict(value or "")

    def handle_data(self, data: str) -> None:
        assert not (self.open and self.open[-1] == "script" and MARK in data)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> too many"
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()
