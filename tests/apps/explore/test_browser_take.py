"""Files of a page as a browser saves them, and commands as it copies them."""

import json
import xml.etree.ElementTree as Tree
from pathlib import Path

STATE = {"model": "llama3-8B", "procs": 64, "tensor_par": 4, "pipeline_par": 2}

PNG = b"\x89PNG\r\n\x1a\n"


def saved(page, selector):
    """Return name and content of what a click saves."""
    with page.expect_download() as download:
        page.click(selector)
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def test_a_page_gives_pictures_files_and_commands(visitor):
    page = visitor.open(STATE)
    name, picture = saved(page, "button[data-picture=png] >> nth=0")
    assert name.startswith("llama3-8B")
    assert picture.startswith(PNG)
    _, drawn = saved(page, "button[data-picture=svg] >> nth=0")
    assert Tree.fromstring(drawn).tag.endswith("svg")
    name, text = saved(page, '#part-take a[href^="/export/execution.json"]')
    assert name == "llama3-8B_h100_80g_sxm_64_t4_p2_d8_mbs1_execution.json"
    stated = json.loads(text)
    assert {one: stated[one] for one in STATE if one in stated} == {
        one: value for one, value in STATE.items() if one in stated
    }
    page.click("#part-take summary")
    shown = page.inner_text("#part-take pre >> nth=0")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#part-take button[data-copy] >> nth=0")
    page.wait_for_function("() => document.getElementById('status').textContent === 'Copied'")
    assert page.evaluate("navigator.clipboard.readText()") == shown
    assert shown.startswith("calculon plan llama3-8B 64 ")
