"""Settings of the whole suite: how many examples hypothesis draws, and which mark each test bears."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

ROOT = Path(__file__).resolve().parent.parent
"""Not from ``tests.helpers``, which imports much: what this file imports, every test does."""

EXAMPLES = 30
settings.register_profile(
    "suite",
    derandomize=True,  # the same examples in every run
    deadline=None,
    max_examples=EXAMPLES,
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),  # failures without minutes of explaining
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")

PLACES = {
    "tests/test_pages.py": "docs",
    "tests/test_scripts.py": "docs",
    "tests/test_examples.py": "docs",
    "tests/apps": "apps",
    "calculon/apps": "apps",
    "tests/test_bootstrap.py": "apps",
    "tests/search": "search",
    "tests/reference/test_searches.py": "search",
    "calculon/search": "search",
}
"""The mark of each place; every other test is of the model."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test by its place: ``pytest -m search`` runs those of the search."""
    for item in items:
        path = item.path.relative_to(ROOT).as_posix()
        marks = (mark for place, mark in PLACES.items() if path.startswith(place))
        item.add_marker(next(marks, "model"))
