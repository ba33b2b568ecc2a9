"""The execution: the split of a model over processors, and its trade-offs between memory, time and traffic.

Its fields select tensor, pipeline, data, context and expert parallelism, the pipeline schedule and its microbatches,
activation recomputation, ZeRO and FSDP sharding, and offloading. Every field is declared once, with its scope
(:class:`~calculon.declarations.fields.Scope`), in a class by subject (:mod:`calculon.declarations.execution_fields`).
Named values and switches of a scope form a frozen record (:mod:`calculon.declarations.scope_choices`); rows of a table
with equal records share costs, and numbers are columns of the table.
"""

from typing import Any, ClassVar

from calculon.base.display import Displayed
from calculon.base.frozen import dataclass
from calculon.declarations.execution_fields.pipeline_fields import MODULE_SETS, STAGE_LISTS
from calculon.declarations.execution_fields.recipe_fields import RecipeFields
from calculon.declarations.fields import (
    BATCH,
    check_record,
    declare,
    optional_defaults,
    spec_fields,
)
from calculon.declarations.named_values import (
    CORRECTED,
    PRESETS,
    PUBLISHED,
    product_type,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution(RecipeFields, Displayed):
    """Plan of one training step (or one inference pass): the 23 published fields and the optional ones.

    The order of the fields is the order in published files and in every table. Optional fields need the corrected
    edition.
    """

    unknown_keys: ClassVar[str] = "error"
    overlays: ClassVar[bool] = True
    completed_where: ClassVar[tuple[tuple[str, str], ...]] = (
        ("edition", CORRECTED),
        *(("preset", name) for name in PRESETS[1:]),
    )
    """Pairs of a field and a value with which a preset fills in the fields left out."""

    preset: str = declare(
        "framework whose defaults fill in the fields left out, and whose limits apply; common: options that all "
        "frameworks share (the default of edition corrected); published: the published forms",
        choices=PRESETS,
        default=PRESETS[0],
        scope=BATCH,
        label="as {} runs it",
        mark="{}",
        searched="argument",
        of="question",
    )

    def __post_init__(self) -> None:
        stage: Any = self.zero_stage
        # Files may write zero_stage as a number, and sets or lists in several notations; records hold one form of each,
        # so that equal executions compare equal. The record is frozen, hence object.__setattr__.
        if type(stage) is int:
            object.__setattr__(self, "zero_stage", str(stage))
        object.__setattr__(self, "recompute_modules", MODULE_SETS.plain(self.recompute_modules))
        object.__setattr__(self, "stage_blocks", STAGE_LISTS.plain(self.stage_blocks))
        check_record(self)

    @property
    def matmul_type(self) -> str:
        """Type of the arithmetic of products with weights."""
        return product_type(self.datatype, self.matmul_dtype, self.fp8_recipe)

    @property
    def extensions(self) -> dict[str, Any]:
        """Optional fields whose value is not the default."""
        defaults = optional_defaults(Execution)
        return {name: v for name in defaults if (v := getattr(self, name)) != defaults[name]}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as in a file: the 23 in published order, then optional ones that differ from the default.

        Edition corrected fills in fields that are left out, so every field is written.
        """
        every = {field.name: getattr(self, field.name) for field in spec_fields(Execution)}
        if self.edition != PUBLISHED:
            return every
        optional = optional_defaults(Execution)
        return {name: v for name, v in every.items() if name not in optional} | self.extensions
