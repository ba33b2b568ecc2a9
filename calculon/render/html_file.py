"""Documents as one HTML file to send: tables to sort, pictures inside, and nothing asked of a network."""

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template

from calculon.render.document import Block
from calculon.render.html import REPORT, fragment

Part = tuple[str, str, tuple[Block, ...]]
"""A part of a file: the name of its place, its title, and its blocks."""


def html_file(title: str, parts: Sequence[Part], lead: Sequence[Block] = ()) -> str:
    """Return a file with a title, a list of its parts, what leads to them, and the parts."""
    single = len(parts) == 1  # it needs neither a list of contents nor a title of its own
    links = (f'<li><a href="#{place}">{escape(name)}</a></li>' for place, name, _ in parts)
    bodies = (
        f'<section id="{place}">\n{"" if single else _title(name)}{fragment(blocks, REPORT)}\n</section>'
        for place, name, blocks in parts
    )
    text = files("calculon.render").joinpath("report.html").read_text("utf-8")
    main = "\n".join((fragment(lead, REPORT), *bodies))
    content = {"title": escape(title), "contents": "" if single else "".join(links), "main": main}
    return Template(text).substitute(content, policy=_policy(text))


def _title(name: str) -> str:
    return f"<h2>{escape(name)}</h2>\n"


def _policy(template: str) -> str:
    """Return what a report may load: nothing but its own script, by its hash, its styles and its pictures."""
    script = template.split("<script>")[1].split("</script>", maxsplit=1)[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
