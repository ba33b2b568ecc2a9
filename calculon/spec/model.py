"""The model: the shape of a transformer of equal blocks."""

from dataclasses import asdict, dataclass, field
from typing import ClassVar

from calculon.spec.fields import check_record, declare


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Shape of a transformer (the *application* of the published tool)."""

    unknown_keys: ClassVar[str] = "warning"
    silent_keys: ClassVar[tuple[str, ...]] = ("ext", "about", "calibration")

    hidden: int = declare("width of the residual stream", unit="elements", at_least=1)
    feedforward: int = declare("inner width of the MLP", unit="elements", at_least=1)
    seq_size: int = declare("sequence length", unit="tokens", at_least=1)
    attn_heads: int = declare("attention heads per block", at_least=1)
    attn_size: int = declare("width of one attention head", unit="elements", at_least=1)
    num_blocks: int = declare("transformer blocks", at_least=1)
    name: str = field(default="model", compare=False)

    def __post_init__(self) -> None:
        check_record(self)

    def to_dict(self) -> dict[str, int]:
        """Return the fields as they stand in a model file."""
        values = asdict(self)
        del values["name"]
        return values
