"""Texts at points do not cover anything; those that do not fit are left out."""

from calculon.render.chart import Axis, Line, Notes, Rule
from calculon.render.label_places import place_labels
from tests.cases import for_each

AXIS = Axis(limits=(0.0, 10.0))
GRID = [(i / 4, j / 4) for i in range(41) for j in range(41)]


@for_each(
    ("point", "text", "others", "side"),
    [
        ((5.0, 5.0), "a", (), "upper right"),
        ((9.9, 5.0), "wide text", (), "upper left"),
        ((9.9, 9.6), "a", (), "left"),
        ((5.0, 5.0), "a", (Rule(at=5.5, level=True),), "right"),
        ((5.0, 5.0), "a", (Rule(at=5.5),), "above"),
        ((5.0, 5.0), "a", (Line(x=[5.6], y=[5.3], marker="circle"),), "above"),
    ],
)
def test_a_text_is_at_the_first_free_side(point, text, others, side):
    found = place_labels(
        Notes(x=point[:1], y=point[1:], texts=[text]), AXIS, AXIS, (2.8, 2.7), others
    )
    assert found.side == [side]


def test_texts_without_room_are_left_out():
    texts = ["x" * 60, "a", "b"]
    notes = Notes(x=[5.0] * 3, y=[5.0] * 3, texts=texts, color=["blue", "sky", "green"])
    found = place_labels(notes, AXIS, AXIS, (2.8, 2.7), ())
    assert (found.texts, found.color) == (["a", "b"], ["sky", "green"])
    assert found.side[0] != found.side[1]
    x, y = zip(*GRID, strict=True)
    assert place_labels(notes, AXIS, AXIS, (2.8, 2.7), (Line(x=x, y=y),)).texts == []
