"""Tables of cases that are one test: quick cases of the same formula need no test each."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import pytest

Test = Callable[..., None]


def for_each(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Call a test with each case, as one test; a failure names every case that fails.

    As ``pytest.mark.parametrize``, but for cases that take milliseconds. Fixtures are the same for all cases.
    """
    known = [names] if isinstance(names, str) else list(names)
    rows = [(case,) if isinstance(names, str) else tuple(case) for case in cases]
    assert rows, f"no cases of {names}"

    def with_cases(test: Test) -> Test:
        @wraps(test)
        def of_all(**fixtures: Any) -> None:
            failures: list[BaseException] = []
            for row in rows:
                case = dict(zip(known, row, strict=True))
                try:
                    test(**fixtures, **case)
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"case: {case}")
                    failures.append(error)
            if failures:
                first, *others = failures
                for one in others:
                    first.add_note("also " + "; ".join(one.__notes__))
                raise first

        signature = inspect.signature(test)
        fixtures = [one for name, one in signature.parameters.items() if name not in known]
        setattr(of_all, "__signature__", signature.replace(parameters=fixtures))  # noqa: B010
        return of_all

    return with_cases
