"""Analytical performance model of training and inference of large language models.

>>> import calculon
>>> result = calculon.estimate("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g")
>>> print(f"{result.stats['total_time']:.1f} s, {result.stats['sample_rate']:.2f} samples/s")
131.9 s, 23.29 samples/s
"""

from calculon.errors import CalculonError, Infeasible, SpecError
from calculon.estimate import Estimate, estimate
from calculon.evaluate import Evaluation, evaluate
from calculon.hardware.system import System
from calculon.plan.plan import Plan
from calculon.search.driver import SearchResult, executions, search
from calculon.spec.execution import Execution
from calculon.spec.model import Model
from calculon.version import __version__

__all__ = [
    "CalculonError",
    "Estimate",
    "Evaluation",
    "Execution",
    "Infeasible",
    "Model",
    "Plan",
    "SearchResult",
    "SpecError",
    "System",
    "__version__",
    "estimate",
    "evaluate",
    "executions",
    "search",
]
