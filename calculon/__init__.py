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
    from calculon.apps.explore.web.own_page import ExplorePage, explore
    from calculon.apps.notebook.comparing import compare, report
    from calculon.apps.notebook.listing import catalog, validate
    from calculon.apps.report.comparison import Comparison
    from calculon.apps.report.served_comparison import ServedComparison
    from calculon.errors import CalculonError, Infeasible, SpecError
    from calculon.estimate import Estimate, estimate
    from calculon.evaluate import Evaluation, evaluate
    from calculon.hardware.system import System
    from calculon.inspect.bounds import bounds
    from calculon.inspect.what_if import figures, what_if
    from calculon.launch.dialect import Launch
    from calculon.plan.plan import Plan
    from calculon.planner.answer import Answer
    from calculon.planner.dependence import Sensitivity
    from calculon.planner.launch_flags import export_flags, import_flags
    from calculon.planner.planning import plan
    from calculon.planner.runs.fleet import FleetAnswer
    from calculon.planner.runs.largest_model import LargestModel, largest_model
    from calculon.planner.runs.run_of_plan import campaign
    from calculon.planner.runs.training_run import TrainingRun
    from calculon.planner.sensitivity import sensitivity
    from calculon.planner.waterfall import Waterfall, waterfall
    from calculon.planner.why import Why, why
    from calculon.search.deployments.deployments_found import DeploymentSearch
    from calculon.search.deployments.serving_search import search_deployments
    from calculon.search.driver import SearchResult, executions, search
    from calculon.serving.by_batch import ByBatch, by_batch
    from calculon.serving.serve import Served, serve
    from calculon.spec.execution import Execution
    from calculon.spec.model import Model
    from calculon.spec.packing import Packing, packing
    from calculon.sweep.sweep_driver import sweep
    from calculon.sweep.sweep_result import Sweep

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
    "SearchResult",
    "Sensitivity",
    "Served",
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
    "compare",
    "estimate",
    "evaluate",
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
    "apps.explore.web.own_page": ("ExplorePage", "explore"),
    "apps.notebook.comparing": ("compare", "report"),
    "apps.notebook.listing": ("catalog", "validate"),
    "apps.report.comparison": ("Comparison",),
    "apps.report.served_comparison": ("ServedComparison",),
    "errors": ("CalculonError", "Infeasible", "SpecError"),
    "estimate": ("Estimate", "estimate"),
    "evaluate": ("Evaluation", "evaluate"),
    "inspect.bounds": ("bounds",),
    "inspect.what_if": ("figures", "what_if"),
    "hardware.system": ("System",),
    "launch.dialect": ("Launch",),
    "plan.plan": ("Plan",),
    "planner.answer": ("Answer",),
    "planner.runs.fleet": ("FleetAnswer",),
    "planner.runs.largest_model": ("LargestModel", "largest_model"),
    "planner.launch_flags": ("export_flags", "import_flags"),
    "planner.runs.run_of_plan": ("campaign",),
    "planner.runs.training_run": ("TrainingRun",),
    "planner.waterfall": ("Waterfall", "waterfall"),
    "planner.planning": ("plan",),
    "planner.dependence": ("Sensitivity",),
    "planner.sensitivity": ("sensitivity",),
    "planner.why": ("Why", "why"),
    "serving.by_batch": ("ByBatch", "by_batch"),
    "serving.serve": ("Served", "serve"),
    "search.deployments.deployments_found": ("DeploymentSearch",),
    "search.deployments.serving_search": ("search_deployments",),
    "search.driver": ("SearchResult", "executions", "search"),
    "spec.execution": ("Execution",),
    "spec.model": ("Model",),
    "spec.packing": ("Packing", "packing"),
    "sweep.sweep_driver": ("sweep",),
    "sweep.sweep_result": ("Sweep",),
}
_HOMES = {name: f"calculon.{module}" for module, names in _MODULES.items() for name in names}
"""The module of each public name: it is imported when the name is first used, so that an estimate loads no search."""


class _Package(ModuleType):
    """A package whose functions keep their names where a module inside has the same: ``estimate``, ``search``."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'calculon' has no attribute '{name}'")
        value = getattr(import_module(_HOMES[name]), name)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
