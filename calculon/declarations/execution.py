"""The execution: how a model is split over processors, and which memory, time and traffic is traded for which.

Every field is declared once, with its scope (:class:`~calculon.declarations.fields.Scope`), in a class of its subject
(:mod:`calculon.declarations.execution_fields`). Named values and switches of a scope are a frozen record
(:mod:`calculon.declarations.scope_choices`), by which rows of a table share costs; numbers are columns of the table.
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
    """The plan of one training step (or one inference pass): the 23 published fields, and optional ones.

    The order of the fields is that of the published files and of every table. The optional fields need the corrected
    edition.
    """

    unknown_keys: ClassVar[str] = "error"
    overlays: ClassVar[bool] = True
    completed_where: ClassVar[tuple[tuple[str, str], ...]] = (
        ("edition", CORRECTED),
        *(("preset", name) for name in PRESETS[1:]),
    )
    """Fields, and their values, with which a preset fills in what is left out."""

    preset: str = declare(
        "framework that fills in the fields that are left out, and whose limits hold; common is what all share, and "
        "the default of edition corrected; published are the published forms",
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
        if type(stage) is int:  # as in most files
            object.__setattr__(self, "zero_stage", str(stage))
        object.__setattr__(self, "recompute_modules", MODULE_SETS.plain(self.recompute_modules))
        blocks: Any = self.stage_blocks
        if isinstance(blocks, (list, tuple)):
            object.__setattr__(self, "stage_blocks", STAGE_LISTS.plain(blocks))
        check_record(self)

    @property
    def matmul_type(self) -> str:
        """Type of the arithmetic of products with weights."""
        return product_type(self.datatype, self.matmul_dtype, self.fp8_recipe)

    @property
    def extensions(self) -> dict[str, Any]:
        """The optional fields that do not have their default."""
        defaults = optional_defaults(Execution)
        return {name: v for name in defaults if (v := getattr(self, name)) != defaults[name]}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as in a file: the 23 in published order, then those that differ from their default.

        In edition corrected, which fills in what is left out, every field is written.
        """
        every = {field.name: getattr(self, field.name) for field in spec_fields(Execution)}
        if self.edition != PUBLISHED:
            return every
        optional = optional_defaults(Execution)
        return {name: v for name, v in every.items() if name not in optional} | self.extensions
