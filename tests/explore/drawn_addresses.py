"""Random addresses of the page: what people ask for, the same with mistakes, and what nobody asks in good faith."""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any
from urllib.parse import quote, urlencode

from calculon import inputs
from calculon.declarations.named_values import PRESETS
from calculon.declarations.run_figures import RUN_FIGURES
from calculon.declarations.spellings import PRECISIONS
from calculon.explore.exports.exports import EXPORTS, LAUNCH_FILES
from calculon.explore.page_state import ASKED, CHANGED, MACHINE, OPTIONS
from calculon.explore.view_names import VIEWS
from calculon.explore.views import KINDS
from calculon.hardware.figures import figures_of
from calculon.plan.columns import FIELDS
from tests.helpers import NAMES

_Asked = tuple[str, str, tuple[int, ...]]

QUICK: Sequence[_Asked] = (
    ("mlp-2x1024", "a100_80g_sxm", (1, 4)),
    ("gpt2-124M", "a100_80g_sxm", (1, 4, 8)),
    ("llama3-8B", "h100_80g_sxm", (8, 16, 64)),
    ("llama3-70B", "h100_80g_sxm", (64, 1024)),
    ("megatron-22B", "a100_80g", (8,)),
    ("nanogpt-mlp", "gaudi3", (8,)),
    ("gemma3-1B", "gb200_nvl72", (8,)),
    ("nemotron3-nano", "tpu_v5p", (8,)),
)
"""Questions whose searches are quick: models, systems and processors."""

MARK = "zzq"
"""What the code that is slipped in would do."""

HOSTILE = (
    *("", " ", "0", "-1", "1e999", "-1e999", "nan", "NaN", "inf", "-inf", "Infinity", "1e308"),
    *("5e-324", "-0"),
    *("9" * 18, "9" * 199, "2147483648", "9223372036854775808", "0x10", "1_000", "1e3", "٣"),
    *("１２", "½", "²"),
    *("null", "None", "true", "[]", "{}", "[1,2]", '{"base": "x"}'),
    *("!!python/object/apply:os.system [id]",),
    *("../../../../etc/passwd", "/etc/passwd", "file:///etc/passwd", "README.md"),
    *("pyproject.toml", "-", "."),
    *("models/llama3-8B.json", "CON", "~root", "\\\\host\\share", "%2e%2e%2f", "..%c0%af"),
    f"<script>{MARK}()</script>",
    f'"><img src=x onerror={MARK}()>',
    f"' onmouseover='{MARK}()",
    f"</title></form><svg onload={MARK}()>",
    f"javascript:{MARK}()",
    f"{{{{ {MARK} }}}}",
    *("{0.__class__}", "%s%n%d", "${jndi:ldap://x}", "' OR 1=1 --", "; DROP TABLE models"),
    *("`id`", "$(id)"),
    *("\x00", "\x1b[31m", "a\r\nSet-Cookie: x=y", "\u202e", "\ud7ff", "\ufeff", "𝕏", "é́"),
    *("\n", "\t", "\x7f"),
    *("__import__('os')", "total_time.__class__", "lambda: 0", "x" * 201, "&", "=", "#", "?"),
    *("a&b=c", "+", "%"),
    *("0.1", "1/3", "8,16", "4-2", "1:1000000000:1", "1k", "4M", "15T", "1e400T", "0%", "1e9%"),
    *("-25%", "all"),
)

MALFORMED = (
    *("", "&", "=", "&&&", "=&=", "%", "%zz", "%ff%fe", "%00", "a", "a=", "=b", "?", "model"),
    *("model=%ff", "+", "%ED%A0%80"),
    *("procs=1&procs=2&procs=x", "system.=1", "system.a.b.c=1", "system.networks[9].size=1"),
    *(";=;", "plan=1"),
    *("system.networks[99999999999].size=8", "system.networks[-1].size=8", "system.base=1"),
    *("system.mem1=1",),
    "x=" + "y" * 7_900,
    "z" * 9_000,
    "&".join(f"a{number}=1" for number in range(900)),
)

PATHS = (
    *("/", "/parts", "/part", "/part/", "/assets/", "/assets/explore.js"),
    *("/assets/explore.css", "/favicon.ico"),
    *("/assets/..%2fpart.py", "/assets/%2e%2e/part.py", "/assets//etc/passwd", "/etc/passwd"),
    *("/..", "/%00"),
    *("/part/%3Cscript%3E", "/part/../assets", "/export/", "/export/..%2f..%2fREADME.md"),
    *("/export/x.json",),
    *("/parts/x", "/.git/config", "/%ff", "/\u00e9", "/part/" + "x" * 500),
)

_TEXTS = {one.name: one for one in FIELDS}


class Addresses:
    """Draws addresses.

    Args:
        seed: Equal seeds draw the same.
        quick: The questions, as :data:`QUICK`.
    """

    def __init__(self, seed: int, quick: Sequence[_Asked] = QUICK):
        self._random, self._quick = Random(seed), quick
        self._figures = {system: _figures(system) for _, system, _ in quick}
        self._parts = [f"/part/{name}" for name in KINDS]
        self._files = [f"/export/{name}" for name in (*EXPORTS, *LAUNCH_FILES)]

    def __iter__(self) -> Iterator[str]:
        while True:
            yield self.draw()

    def draw(self) -> str:
        """Return an address without its host."""
        random = self._random
        if random.random() < 0.1:
            return f"{random.choice(PATHS)}?{urlencode(self._question())}"
        path = random.choices(
            ("/", "/parts", random.choice(self._parts), random.choice(self._files)), (2, 5, 3, 0.3)
        )[0]
        if random.random() < 0.2:
            return f"{path}?{random.choice(MALFORMED)}"
        pairs = self.pairs()
        if random.random() < 0.6:
            pairs = self._spoilt(pairs)
        return (
            f"{path}?{urlencode(pairs, quote_via=random.choice((quote, _plus)), errors='replace')}"
        )

    def pairs(self) -> list[tuple[str, str]]:
        """Return names and values that people may well ask for."""
        random = self._random
        pairs = self._question()
        system = dict(pairs)["system"]
        if random.random() < 0.5:
            pairs += [self._field() for _ in range(random.randint(1, 6))]
        if random.random() < 0.3:
            paths = self._figures[system]
            pairs += [self._figure(*random.choice(paths)) for _ in range(random.randint(1, 3))]
        if random.random() < 0.4:
            pairs += [self._option(random.choice([*OPTIONS])) for _ in range(random.randint(1, 3))]
        if random.random() < 0.6:
            pairs.append(("view", random.choice(VIEWS)))
        if random.random() < 0.3:
            pairs.append((CHANGED, random.choice([*ASKED, *dict(pairs), "tensor_par"])))
        return pairs

    def _question(self) -> list[tuple[str, str]]:
        random = self._random
        model, system, counts = random.choice(self._quick)
        pairs = [("model", model), ("system", system), ("procs", str(random.choice(counts)))]
        words: Mapping[str, Sequence[str]] = {
            "preset": [*PRESETS],
            "batch": ("64", "512", "1M", "4M"),
            "seq": ("2k", "4096", "8k"),
            "dtype": [*PRECISIONS],
            "tokens": ("1T", "15T", "chinchilla"),
        }
        for name, values in words.items():
            if random.random() < 0.15:
                pairs.append((name, random.choice(values)))
        return pairs

    def _field(self) -> tuple[str, str]:
        """Return a field of a plan with a value of its kind."""
        random = self._random
        one = random.choice(FIELDS) if random.random() < 0.6 else _TEXTS[random.choice(_COMMON)]
        if choices := one.declaration.choices:
            return one.name, str(random.choice(list(choices)))
        if one.annotation is bool:
            return one.name, random.choice(("true", "false", "on"))
        return one.name, str(random.choice((0, 1, 1, 2, 2, 3, 4, 5, 8, 16, 64)))

    def _figure(self, path: str, value: float) -> tuple[str, str]:
        """Return a figure of a machine that is changed."""
        random = self._random
        changed = random.choice(
            (value * random.uniform(0.5, 2), value * 1e9, value / 1e9, 0, -value, 1, 1e300, 1e-300)
        )
        return MACHINE + path, repr(random.choice((changed, round(changed))))

    def _option(self, name: str) -> tuple[str, str]:
        """Return an option of a view."""
        random = self._random
        known = (*NAMES, *RUN_FIGURES, *_TEXTS, OPTIONS[name])
        values = (
            random.choice(known),
            f"{random.choice(known)} < {random.choice((1, 60, 8e10))}",
            *("0", "1", "2", "7", "on", "1,2", "64,128", "10%", "forward", "MLP"),
        )
        return name, random.choice(values)

    def _spoilt(self, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return an address with a mistake, or an attack."""
        random = self._random
        for _ in range(random.randint(1, 3)):
            at = random.randrange(len(pairs))
            name, value = pairs[at]
            pairs[at] = random.choice(
                (
                    (name, random.choice(HOSTILE)),
                    (name, random.choice(HOSTILE)),
                    (name, value + random.choice(HOSTILE)),
                    (name, value[: random.randrange(len(value) + 1)]),
                    (random.choice(HOSTILE), value),
                    (name + random.choice(HOSTILE), value),
                    (random.choice([*ASKED, *OPTIONS, *_TEXTS]), random.choice(HOSTILE)),
                )
            )
            if random.random() < 0.2:
                pairs.append(random.choice(pairs))
        random.shuffle(pairs)
        return pairs


_COMMON = ("tensor_par", "pipeline_par", "microbatch_size", "pipeline_interleaving", "zero_stage")


def _plus(text: str, *rest: Any) -> str:
    """Return a text with the characters that addresses need escaped, and no others."""
    return quote(text, safe="/:?@!$'()*,;[]{}<>|\\^`\"", encoding="utf-8", errors="replace")


def _figures(system: str) -> list[tuple[str, float]]:
    """Return the paths of the figures of a system, with their values."""
    return [(path, one.value) for path, one in figures_of(inputs.system(system)).items()]
