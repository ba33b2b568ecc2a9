"""The page as a whole: keyboard, history, screen readers, phones, what is refused."""

from random import Random

from playwright.sync_api import Page

from tests.apps.explore.browsing import Visitor, resized, settled, wider_than_screen

SMALL = {"model": "gpt2-124M", "system": "a100_80g_sxm", "procs": 8}


def focused(page: Page) -> str:
    return page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()")


def test_the_keyboard_reaches_everything_in_the_order_of_the_page(visitor: Visitor) -> None:
    page = visitor.open(SMALL, charts=False)
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the results"
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(focused(page))
    assert reached[:4] == ["Plan", "Search", "Machine", "Pipeline"]
    assert "Copy link" in reached
    assert reached.index("c-model") < reached.index("c-system") < reached.index("c-procs")
    page.focus(".skip")
    page.keyboard.press("Enter")
    assert focused(page) == "main"
    assert page.url.endswith("#main")
    page.focus("#views a:nth-of-type(2)")
    page.keyboard.press("Enter")
    settled(page)
    assert "view=search" in page.url
    assert focused(page) == "Search"
    assert page.get_attribute("#views a:nth-of-type(2)", "aria-current") == "page"


def test_what_is_refused_is_said_and_the_page_stays(visitor: Visitor) -> None:
    page = visitor.open(SMALL, charts=False)
    before, address = page.inner_text("#main"), page.url
    page.fill("#c-procs", "many")
    page.keyboard.press("Enter")
    settled(page)
    assert "Processors" in page.inner_text("#message")
    assert page.get_attribute("#c-procs", "aria-invalid") == "true"
    assert (page.inner_text("#main"), page.url, focused(page)) == (before, address, "c-procs")
    page.keyboard.press("Escape")
    settled(page)
    assert page.input_value("#c-procs") == "8"
    assert not page.inner_text("#message")
    assert page.get_attribute("#c-procs", "aria-invalid") is None


def test_back_restores_the_control_that_has_the_focus(visitor: Visitor) -> None:
    page = visitor.open(SMALL, charts=False)
    page.fill("#c-procs", "16")
    page.keyboard.press("Enter")
    settled(page)
    after = page.url
    assert "procs=16" in after
    page.go_back()
    settled(page)
    assert (page.input_value("#c-procs"), focused(page)) == ("8", "c-procs")
    page.go_forward()
    settled(page)
    assert (page.input_value("#c-procs"), page.url) == ("16", after)


def test_the_newest_of_many_changes_counts(visitor: Visitor) -> None:
    page = visitor.open(SMALL, charts=False)
    page.evaluate(
        """() => {
          const control = document.getElementById("c-preset");
          for (const name of ["torchtitan", "deepspeed", "torchtitan", "llm-foundry"]) {
            control.value = name;
            control.dispatchEvent(new Event("change", { bubbles: true }));
          }
        }"""
    )
    settled(page)
    assert "preset=llm-foundry" in page.url
    assert page.input_value("#c-preset") == "llm-foundry"


def test_a_link_of_the_page_is_copied(visitor: Visitor) -> None:
    page = visitor.open(charts=False, permissions=["clipboard-read", "clipboard-write"])
    page.click("text=Copy link")
    page.wait_for_selector("text=Copied")
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    assert "model=" in page.url


def test_on_a_phone_the_controls_unfold(visitor: Visitor) -> None:
    page = visitor.open(SMALL, reduced_motion="reduce")
    for width in (390, 320):
        resized(page, width)
        assert not page.is_visible("#c-model")
        page.click("text=Question and plan")
        assert page.is_visible("#c-model")
        assert page.get_attribute(".fold", "aria-expanded") == "true"
        assert not wider_than_screen(page)
        page.click("text=Question and plan")
        assert not page.is_visible("#c-model")
    moves = "getComputedStyle(document.querySelector('.part')).transitionDuration"
    assert page.evaluate(moves) == "0s"
    page.emulate_media(reduced_motion="no-preference")
    assert page.evaluate(moves) != "0s"


def test_without_scripts_every_part_can_be_reached(visitor: Visitor) -> None:
    visitor.open(SMALL, charts=False)  # whose search is known then
    context = visitor.window(java_script_enabled=False)
    page = context.new_page()
    page.goto(visitor.link(SMALL))
    parts = page.locator("main .part noscript a")
    addresses = [one.get_attribute("href") for one in parts.all()]
    assert len(addresses) == page.locator("main [data-later]").count() > 0
    page.goto(visitor.address + next(one for one in addresses if "/part/take" in one))
    assert page.locator('#part-take a[href^="/export/"]').count() > 0
    page.click("text=Back to the page")
    assert "model=gpt2-124M" in page.url
    assert page.locator("#part-figures strong").count() > 0


def test_no_button_of_a_chart_sends_it_anywhere(visitor: Visitor) -> None:
    page = visitor.open(SMALL)
    buttons = page.locator(".modebar-btn").evaluate_all(
        "all => all.map((one) => one.dataset.title)"
    )
    assert {"Zoom in", "Reset axes"} <= {*buttons}
    assert not [one for one in buttons if "share" in one.lower() or "cloud" in one.lower()]


def test_screen_readers_find_names_and_what_charts_show(visitor: Visitor) -> None:
    page = visitor.open(SMALL)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("input:not([type=hidden]), select, button, a[href], [role=img]")]
          .filter((one) => one.checkVisibility() && !one.closest(".modebar"))
          .filter((one) => !(one.labels?.length || one.getAttribute("aria-label") || one.textContent.trim()))
          .map((one) => one.outerHTML.slice(0, 200))"""
    )
    assert not nameless
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((one) => one.id)")
    own = [
        one for one in ids if not one.startswith(("clip", "legend", "topdefs", "defs", "modebar"))
    ]
    assert len(own) == len(set(own))
    assert page.locator("main h2").count() >= 1
    assert page.locator("h1").count() == 1
    page.emulate_media(media="print")
    assert not page.is_visible("#c-model")
    assert page.is_visible("main h2")


def tree(draw: Random, depth: int = 2) -> str:
    """Return some HTML, in which no name comes twice."""
    names = draw.sample("abcdefgh", 8)
    lines = []
    for _ in range(draw.randrange(5)):
        name = f' id="{names.pop()}{depth}{draw.random()}"' if draw.random() < 0.2 else ""
        name = name or (f' id="{names.pop()}{depth}"' if draw.random() < 0.6 and depth == 2 else "")
        tag = draw.choice(["p", "div", "section"])
        inside = tree(draw, depth - 1) if depth else draw.choice(["", "some", "other words"])
        lines.append(f'<{tag}{name} class="{draw.choice("xyz")}">{inside}</{tag}>')
    return draw.choice(["", "words "]).join(lines)


def test_old_parts_become_equal_to_fresh_ones_and_keep_what_has_a_name(visitor: Visitor) -> None:
    page = visitor.open(SMALL, charts=False)
    draw = Random(0)
    pairs = [(tree(draw), tree(draw)) for _ in range(300)]
    failed = page.evaluate(
        """async (pairs) => {
          const { fill, parsed } = await import("/assets/morph.js");
          return pairs.filter(([before, after]) => {
            const place = document.createElement("section");
            place.append(parsed(before));
            const named = new Map([...place.children].filter((one) => one.id).map((one) => [one.id, one]));
            fill(place, after);
            const wanted = document.createElement("section");
            wanted.append(parsed(after));
            const kept = [...place.children].every((one) => {
              const old = named.get(one.id);
              return !old || old === one || old.tagName !== one.tagName;
            });
            return place.innerHTML !== wanted.innerHTML || !kept;
          });
        }""",
        pairs,
    )
    assert not failed
