"""What every answer of the page is: of a known status, in order, and without a word of anybody else's."""

import json
from typing import Any

import httpx

from tests.explore.drawn_addresses import MARK
from tests.outline import Outline

STATUSES = (200, 400, 404, 414)

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
    page = Outline(text)
    assert not any(MARK in script for script in page.scripts)
    for tag, attrs in page.elements:
        values = dict(attrs)
        assert len(values) == len(attrs), f"{tag} has an attribute twice: {attrs}"
        assert tag not in ("iframe", "object", "embed", "base"), tag
        own = (values.get("src") or "").startswith("/assets/")
        assert tag != "script" or own or (alone and "src" not in values), attrs
        for name, value in values.items():
            assert not name.startswith("on"), (tag, name)
            assert MARK not in name
            if name in ("href", "src", "action"):
                assert (value or "").startswith(("/", "#", "data:,", "https://")), (tag, value)
            if name == "data-figure":
                strict(value or "")
