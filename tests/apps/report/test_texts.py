"""Words and numbers of pages."""

import pytest

from calculon.apps.report.texts import token_count


@pytest.mark.parametrize(
    ("count", "text"),
    [(15.6e12, "15.6 T"), (1e12, "1 T"), (3e11, "300 G"), (500.0, "500"), (20_003e6, "20 G")],
)
def test_tokens_are_written_without_zeros(count, text):
    assert token_count(count) == text
