"""Campaigns of the catalog: each is read, says where it is from, and has all of its tokens in its parts."""

import math
import re

from calculon.campaign.read import read_campaign
from calculon.campaign.rungs import rungs
from calculon.spec import catalog
from tests.cases import for_each

NAMES = tuple(catalog.names("campaign"))
SOURCE = re.compile(r"arXiv:\d{4}\.\d{5}|model card|BigScience")


@for_each("name", NAMES)
def test_it_says_what_it_is_and_where_it_is_from(name):
    asked = read_campaign(name)
    assert asked.name == name
    assert asked.document["about"]
    assert SOURCE.search(catalog.names("campaign")[name].read_text(encoding="utf-8"))
    assert name not in catalog.names("model")


@for_each("name", NAMES)
def test_its_parts_have_all_of_its_tokens(name):
    asked = read_campaign(name)
    whole = 0.0 if asked.tokens is None else asked.tokens.of(1e9)
    stated = whole or sum(one.tokens.of(1e9) for one in asked.phases)
    parts = rungs(asked, whole, 1e9, 2048, 2048)
    assert math.isclose(sum(one.tokens for one in parts), stated)
    assert max(one.tokens for one in parts) > stated / 2
