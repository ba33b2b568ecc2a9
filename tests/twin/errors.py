"""The two ways in which an execution can fail."""


class _Failure(Exception):
    """Failure of the requirement numbered `rule` (see `checks`)."""

    def __init__(self, rule: int, message: str) -> None:
        super().__init__(message)
        self.rule = rule


class Rejected(_Failure):
    """The request is malformed."""


class DoesNotFit(_Failure):
    """The request is well formed but cannot run on this system."""


def require(rule: int, condition: bool, message: str) -> None:
    """Raise `Rejected` unless `condition` holds."""
    if not condition:
        raise Rejected(rule, message)


def require_fit(rule: int, condition: bool, message: str) -> None:
    """Raise `DoesNotFit` unless `condition` holds."""
    if not condition:
        raise DoesNotFit(rule, message)
