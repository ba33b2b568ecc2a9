"""Analytical performance model of training and inference of large language models.

>>> import calculon
>>> result = calculon.estimate("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g")
>>> print(f"{result.stats['total_time']:.1f} s, {result.stats['sample_rate']:.2f} samples/s")
131.9 s, 23.29 samples/s
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from calculon.version import __version__

if TYPE_CHECKING:
    from calculon.advise.answer import Answer
    from calculon.advise.launch_flags import export_flags, import_flags
    from calculon.advise.planning import plan
    from calculon.advise.runs.fleet import FleetAnswer
    from calculon.advise.runs.largest_model import LargestModel, largest_model
    from calculon.advise.runs.run_of_plan import campaign
    from calculon.advise.runs.training_run import TrainingRun
    from calculon.advise.sensitivity import sensitivity
    from calculon.advise.sensitivity_result import Sensitivity
    from calculon.advise.waterfall import Waterfall, waterfall
    from calculon.advise.why import Why, why
    from calculon.base.errors import CalculonError, Infeasible, SpecError
    from calculon.declarations.execution import Execution
    from calculon.declarations.model import Model
    from calculon.declarations.packing import Packing, packing
    from calculon.documents.compare_and_report import compare, report
    from calculon.documents.comparison import Comparison
    from calculon.documents.listing import catalog, evidence, validate
    from calculon.documents.served_comparison import ServedComparison
    from calculon.estimate.bounds import bounds
    from calculon.estimate.estimate import Estimate, estimate
    from calculon.estimate.evaluate import Evaluation, evaluate
    from calculon.estimate.what_if import figures, what_if
    from calculon.explore.web.embedded_page import ExplorePage, explore
    from calculon.hardware.system import System
    from calculon.launch.dialect import Launch
    from calculon.plan.plan import Plan
    from calculon.search.deployments.best_deployment import search_deployments, serve
    from calculon.search.deployments.deployment_search import DeploymentSearch
    from calculon.search.driver import SearchResult, executions, search
    from calculon.search.sweep.sweep_driver import sweep
    from calculon.search.sweep.sweep_result import Sweep
    from calculon.serving.by_batch import ByBatch, by_batch
    from calculon.serving.replay.replayed import Replay
    from calculon.serving.serve import Served
    from calculon.validate.served_check import ServedCheck, check_benchmark

__all__ = [
    "Answer",
    "ByBatch",
    "CalculonError",
    "Comparison",
    "DeploymentSearch",
    "Estimate",
    "Evaluation",
    "Execution",
    "ExplorePage",
    "FleetAnswer",
    "Infeasible",
    "LargestModel",
    "Launch",
    "Model",
    "Packing",
    "Plan",
    "Replay",
    "SearchResult",
    "Sensitivity",
    "Served",
    "ServedCheck",
    "ServedComparison",
    "SpecError",
    "Sweep",
    "System",
    "TrainingRun",
    "Waterfall",
    "Why",
    "__version__",
    "bounds",
    "by_batch",
    "campaign",
    "catalog",
    "check_benchmark",
    "compare",
    "estimate",
    "evaluate",
    "evidence",
    "executions",
    "explore",
    "export_flags",
    "figures",
    "import_flags",
    "largest_model",
    "packing",
    "plan",
    "report",
    "search",
    "search_deployments",
    "sensitivity",
    "serve",
    "sweep",
    "validate",
    "waterfall",
    "what_if",
    "why",
]

_MODULES = {
    "explore.web.embedded_page": ("ExplorePage", "explore"),
    "documents.compare_and_report": ("compare", "report"),
    "documents.listing": ("catalog", "evidence", "validate"),
    "documents.comparison": ("Comparison",),
    "documents.served_comparison": ("ServedComparison",),
    "base.errors": ("CalculonError", "Infeasible", "SpecError"),
    "estimate.estimate": ("Estimate", "estimate"),
    "estimate.evaluate": ("Evaluation", "evaluate"),
    "estimate.bounds": ("bounds",),
    "estimate.what_if": ("figures", "what_if"),
    "hardware.system": ("System",),
    "launch.dialect": ("Launch",),
    "plan.plan": ("Plan",),
    "advise.answer": ("Answer",),
    "advise.runs.fleet": ("FleetAnswer",),
    "advise.runs.largest_model": ("LargestModel", "largest_model"),
    "advise.launch_flags": ("export_flags", "import_flags"),
    "advise.runs.run_of_plan": ("campaign",),
    "advise.runs.training_run": ("TrainingRun",),
    "advise.waterfall": ("Waterfall", "waterfall"),
    "advise.planning": ("plan",),
    "advise.sensitivity_result": ("Sensitivity",),
    "advise.sensitivity": ("sensitivity",),
    "advise.why": ("Why", "why"),
    "serving.by_batch": ("ByBatch", "by_batch"),
    "serving.replay.replayed": ("Replay",),
    "serving.serve": ("Served",),
    "validate.served_check": ("ServedCheck", "check_benchmark"),
    "search.deployments.best_deployment": ("search_deployments", "serve"),
    "search.deployments.deployment_search": ("DeploymentSearch",),
    "search.driver": ("SearchResult", "executions", "search"),
    "declarations.execution": ("Execution",),
    "declarations.model": ("Model",),
    "declarations.packing": ("Packing", "packing"),
    "search.sweep.sweep_driver": ("sweep",),
    "search.sweep.sweep_result": ("Sweep",),
}
_HOMES = {name: f"calculon.{module}" for module, names in _MODULES.items() for name in names}
"""Module of each public name, imported when the name is first used, so that an estimate does not import the search."""


class _Package(ModuleType):
    """Package whose functions keep their names although modules of the same names exist: ``estimate``, ``search``."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name not in _HOMES:
            from calculon.base.errors import nearest

            hint = nearest(name, __all__)
            text = f"module 'calculon' has no attribute {name!r}"
            raise AttributeError(f"{text}. Hint: {hint}" if hint else text)
        value = getattr(import_module(_HOMES[name]), name)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
