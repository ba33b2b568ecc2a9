"""Ranges of figures of served models: laws on tables of random rows, and the formula where it is a known one."""

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from calculon import inputs
from calculon.declarations.serving_classes import (
    ANY_ENGINE,
    ENGINES,
    FULL,
    FULL_SHARE,
    KINDS,
    LATENCY,
    LOADS,
    SINGLE,
    ServedClass,
)
from calculon.estimate import served_errors as module
from calculon.estimate.served_errors import (
    FIGURES,
    FILE,
    Evidence,
    PublishedRow,
    basis,
    evidence,
    published_rows,
    served_ranges,
)
from tests.cases import for_each
from tests.helpers import ROOT

GENERATIONS = ("NVIDIA Hopper", "NVIDIA Blackwell", "AMD CDNA 3")


def any_class(random: Random) -> ServedClass:
    """Draw a class."""
    return ServedClass(
        kind=random.choice(list(KINDS)),
        engine=random.choice(list(ENGINES)),
        generation=random.choice(GENERATIONS),
        load=random.choice(list(LOADS)),
    )


def any_rows(random: Random, sources: int = 5) -> tuple[PublishedRow, ...]:
    """Draw rows of some sources, each with its own error and a few classes."""
    found = []
    for source in range(sources):
        shift = random.gauss(0, 0.3)
        classes = [any_class(random) for _ in range(3)]
        for _ in range(random.randint(3, 12)):
            row = PublishedRow(
                figure="tpot",
                of_class=random.choice(classes),
                model="model",
                system="system",
                source=f"source {source}",
                study=f"study {source} {random.randint(0, 1)}",
                ratio=math.exp(shift + random.gauss(0, 0.1)),
            )
            found.append(row)
    return tuple(found)


SEEDS = range(20)


@for_each("seed", SEEDS)
def test_a_kind_of_model_without_rows_has_a_wider_range_than_every_class_with_rows(seed):
    rows = [row for row in any_rows(Random(seed), 9) if row.of_class.kind != "MoE"]
    known = {row.of_class for row in rows}
    found = Evidence(tuple(rows))
    low, high = found.ends(replace(rows[0].of_class, kind="MoE"))
    for one in (*known, *(replace(one, engine=ANY_ENGINE) for one in known)):
        ends = found.ends(one)
        assert low <= ends.low < ends.high <= high
        assert high - low > ends.high - ends.low


@for_each("seed", SEEDS)
def test_a_class_without_rows_has_the_range_of_its_kind(seed, monkeypatch):
    """With equal weights of all rows of a kind."""
    factors = {name: 1.0 if name != "kind" else 8.0 for name in module.FACTORS}
    monkeypatch.setattr(module, "FACTORS", factors)
    rows = any_rows(Random(seed))
    found = Evidence(rows)
    for row in rows:
        outside = replace(row.of_class, generation="TPU", apart=True)
        assert not found.has(outside).any()
        assert found.ends(outside) == found.ends(row.of_class)


@for_each("seed", SEEDS)
def test_campaigns_count_alike_whatever_rows_they_have(seed):
    """Rows of a source that are there several times change no range."""
    rows = any_rows(Random(seed))
    again = (*rows, *(row for row in rows if row.source == "source 0" for _ in range(9)))
    for one in {row.of_class for row in rows}:
        assert Evidence(again).ends(one) == pytest.approx(Evidence(rows).ends(one))


@for_each("seed", SEEDS)
def test_ranges_follow_a_bias_of_all_rows(seed):
    rows = any_rows(Random(seed))
    one = rows[0].of_class
    shifted = tuple(replace(row, ratio=row.ratio * 1.5) for row in rows)
    ends, others = (Evidence(some).ends(one) for some in (rows, shifted))
    assert np.subtract(others, ends) == pytest.approx(math.log(1.5))


@for_each("seed", SEEDS)
def test_more_campaigns_that_differ_as_much_make_a_range_narrower(seed):
    rows = any_rows(Random(seed))
    several = (*rows, *(replace(row, source=f"{row.source} again") for row in rows))
    one = rows[0].of_class
    (low, high), (lower, higher) = (Evidence(some).ends(one) for some in (rows, several))
    assert higher - lower < high - low


@for_each("name", module.FACTORS)
def test_rows_of_the_same_class_count_more(name):
    near = ServedClass(kind="MoE", engine="vllm", generation="NVIDIA Hopper", load=FULL)
    far = {
        "kind": "dense",
        "engine": "sglang",
        "generation": "AMD CDNA 3",
        "load": LATENCY,
        "apart": True,
    }
    other = replace(near, **{name: far[name]})
    rows = tuple(
        PublishedRow(
            figure="tpot",
            of_class=one,
            model="model",
            system="system",
            source=source,
            study=source,
            ratio=ratio,
        )
        for one, ratio, sources in ((near, 1.0, "ab"), (other, 2.0, "cd"))
        for source in sources
    )
    middles = [sum(Evidence(rows).ends(one)) / 2 for one in (near, other)]
    assert np.exp(middles) == pytest.approx([1.0, 2.0])


def test_one_campaign_says_nothing_about_others():
    one, *others = any_rows(Random(2), sources=1)
    rows = (one, *(replace(row, of_class=one.of_class) for row in others))
    assert Evidence(rows).ends(one.of_class) is None
    again = tuple(replace(row, model="another model") for row in rows)
    assert Evidence((*rows, *again)).ends(one.of_class) is not None


def test_an_unknown_engine_makes_rows_of_all_engines_alike():
    rows = any_rows(Random(3))
    one = replace(rows[0].of_class, engine=ANY_ENGINE)
    found = Evidence(rows)
    # The campaigns of different engines remain different.
    others = [
        replace(row, model=row.of_class.engine, of_class=replace(row.of_class, engine="nim"))
        for row in rows
    ]
    assert found.ends(one) == pytest.approx(Evidence(tuple(others)).ends(one))
    assert found.has(one).sum() == sum(
        replace(row.of_class, engine=ANY_ENGINE) == one for row in rows
    )


def test_single_streams_and_loaded_replicas_have_first_tokens_of_their_own():
    rows = [replace(row, figure="ttft") for row in any_rows(Random(4))]
    found = evidence([*rows, *any_rows(Random(4))])
    assert set(found) == {("ttft", True), ("ttft", False), ("tpot", False)}
    assert {row.of_class.load for row in found["ttft", False].rows} == {SINGLE}
    assert SINGLE not in {row.of_class.load for row in found["ttft", True].rows}
    assert SINGLE in {row.of_class.load for row in found["tpot", False].rows}


@for_each(
    ("concurrency", "most", "load"),
    [
        (0.2, 100, SINGLE),
        (1, 1, SINGLE),
        (1 + 1e-12, 100, SINGLE),
        (2, 100, LATENCY),
        (100 * FULL_SHARE - 0.1, 100, LATENCY),
        (100 * FULL_SHARE, 100, FULL),
        (2, 2, FULL),
    ],
)
def test_loads_are_sequences_against_what_the_batch_allows(concurrency, most, load):
    found = ServedClass.of(inputs.model("llama3-8B"), "vllm", "", concurrency, most)
    assert found == ServedClass(kind="dense", engine="vllm", generation="", load=load)


def test_pools_for_prefill_are_classes_of_their_own():
    one = next(row.of_class for row in published_rows() if row.of_class.apart)
    for of_class in (one, replace(one, apart=False)):
        (found,) = served_ranges(of_class, {"tpot": 1.0}).values()
        own = [row for row in published_rows() if row.of_class == of_class and row.figure == "tpot"]
        assert found.class_rows == len(own)
    assert one.in_words == f"{replace(one, apart=False).in_words}, prefill on other processors"


@for_each(
    ("model", "kind"),
    [
        ("qwen3-30B-a3B", "MoE"),
        ("deepseek-v3", "latent attention"),
        ("minicpm3-4B", "latent attention"),
    ],
)
def test_kinds_of_models(model, kind):
    assert ServedClass.of(inputs.model(model), "vllm", "", 1, 1).kind == kind


def test_every_line_of_the_file_is_a_row():
    lines = (ROOT / FILE).read_text().splitlines()
    rows = published_rows()
    assert [",".join(map(str, row.to_dict().values())) for row in rows] == lines[1:]
    for row in rows:
        assert row.figure in FIGURES
        assert row.of_class.kind in KINDS
        assert row.of_class.engine in ENGINES
        assert row.of_class.load in LOADS
        assert row.ratio > 0
    assert {row.of_class.kind for row in rows} == set(KINDS)


def test_ranges_are_ratios_times_predicted_values():
    one = published_rows()[0].of_class
    figures = {"ttft": math.inf, "tpot": 0.02, "output_rate": 1000.0}
    found = served_ranges(one, figures)
    assert set(found) == {"tpot", "output_rate"}
    for name, each in found.items():
        assert (each.low, each.high) == pytest.approx(
            (each.ratio_low * figures[name], each.ratio_high * figures[name])
        )
        assert each.value == pytest.approx(figures[name])
        rows = [row for row in published_rows() if row.figure == name]
        own = [row for row in rows if row.of_class == one]
        assert (each.rows, each.class_rows) == (len(rows), len(own))
        assert each.class_sources == len({row.source for row in own})
        assert f"{len(own):,} of {len(rows):,}" in basis(one, found)


def test_no_range_is_faster_than_the_roofline():
    one = published_rows()[0].of_class
    figures = {"tpot": 0.02, "output_rate": 1000.0}
    free = served_ranges(one, figures)
    middle = math.sqrt(free["tpot"].low * 0.02), math.sqrt(free["output_rate"].high * 1000)
    found = served_ranges(one, figures, {"tpot": middle[0], "output_rate": middle[1]})
    assert (found["tpot"].low, found["output_rate"].high) == pytest.approx(middle)
    assert found["tpot"].high == free["tpot"].high
    assert found["output_rate"].low == free["output_rate"].low
    # A prediction that beats the stated peak remains in its range.
    beaten = served_ranges(one, figures, {"tpot": 1.0, "output_rate": 1.0})
    assert (beaten["tpot"].low, beaten["output_rate"].high) == pytest.approx((0.02, 1000))


def test_of_a_class_without_rows_the_basis_names_rows_of_its_kind():
    rows = published_rows()
    one = replace(rows[0].of_class, generation="none")
    (found,) = served_ranges(one, {"tpot": 1.0}).values()
    shared = [row for row in rows if row.figure == "tpot" and row.of_class.kind == one.kind]
    assert found.class_rows == 0
    assert found.sharing_rows == len(shared)
    assert f"{len(shared):,} rows of" in basis(one, {"tpot": found})
    assert f"are of {one.kind} models" in basis(one, {"tpot": found})


def test_without_a_file_there_are_none(monkeypatch, tmp_path):
    one = published_rows()[0].of_class
    monkeypatch.setattr(module.catalog, "root", lambda: tmp_path)
    for cached in (published_rows, module._published):
        cached.cache_clear()
    try:
        assert published_rows() == ()
        assert served_ranges(one, {"tpot": 1.0}) == {}
    finally:
        for cached in (published_rows, module._published):
            cached.cache_clear()
