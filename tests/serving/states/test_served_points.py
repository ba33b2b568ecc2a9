"""Limits, and by how much they are missed."""

from calculon.serving.states.served_points import Limit
from tests.cases import for_each


@for_each(
    ("found", "most", "words"),
    [
        (3.0, 2.0, "ttft: 3 of 2 s, 1.5 times as much"),
        (7.6, 7.57, "ttft: 7.6 of 7.57 s, 0.4 % more"),
        (7.5701, 7.57, "ttft: 7.5701 of 7.57 s, 0.0013 % more"),
        (1.0, 2.0, "ttft: 1 of 2 s"),
        (float("inf"), 2.0, "ttft: without end, of 2 s"),
    ],
)
def test_a_limit_in_words(found, most, words):
    assert Limit(name="ttft", unit="s", most=most, found=found).in_words.lower() == words
