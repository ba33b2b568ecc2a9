"""Words and numbers of pages."""

from calculon.apps.report.texts import token_count


def test_tokens_are_written_without_zeros():
    counts = (15.6e12, 1e12, 3e11, 500.0, 20_003e6)
    assert [*map(token_count, counts)] == ["15.6 T", "1 T", "300 G", "500", "20 G"]
