"""Documents as one self-contained HTML file: sortable tables, embedded pictures, no network requests."""

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template

from calculon.render.document import Block
from calculon.render.html import REPORT, fragment

Part = tuple[str, str, tuple[Block, ...]]
"""Part of a file: its anchor, its title and its blocks."""


def html_file(title: str, parts: Sequence[Part], lead: Sequence[Block] = ()) -> str:
    """Return a file with a title, a table of contents, introductory blocks, and the parts."""
    single = len(parts) == 1  # needs neither a table of contents nor a second title
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
    """Return the content security policy of a report: its script by hash, its styles and pictures, nothing else."""
    script = template.split("<script>")[1].split("</script>", maxsplit=1)[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
