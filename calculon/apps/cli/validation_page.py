"""Errors of studies as one self-contained HTML page."""

import html
from collections.abc import Sequence

from calculon.apps.cli.validation_tables import heading, sections
from calculon.apps.validate.measured_and_predicted import Result


def page(results: Sequence[Result]) -> str:
    """Return the tables of some studies as a page."""
    body = "\n".join(
        f"<h2>{html.escape(one.title)}</h2>\n{one.table.html()}" for one in sections(results)
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>Validation</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>Validation</h1>\n"
        f"<p>{html.escape(heading(results))}</p>\n{body}\n</body>\n</html>"
    )


STYLE = (
    "body{font:14px/1.45 system-ui,sans-serif;margin:2rem;max-width:110rem}"
    "table{border-collapse:collapse}th,td{padding:.2rem .7rem;text-align:left;vertical-align:top}"
    "th{border-bottom:1px solid #888}tr:nth-child(even) td{background:#f4f4f4}"
    ".right{text-align:right;font-variant-numeric:tabular-nums}"
)
