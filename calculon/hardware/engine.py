"""A processing engine: the time of some FLOP."""

from calculon.base.frozen import dataclass
from calculon.base.units import GIGA, TERA, Flops, Seconds
from calculon.declarations.fields import declare
from calculon.hardware.curve import Curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A matrix or vector engine in one datatype."""

    peak: float = declare("peak rate", key="tflops", unit="TFLOP/s", scale=TERA, above=0)
    efficiency: Curve = declare(
        "achieved share of the peak by size of the operation: [threshold, efficiency], falling",
        key="gflops_efficiency",
        unit="GFLOP",
        scale=GIGA,
    )

    def time(self, flops: Flops) -> Seconds:
        """Return the arithmetic time of operations by their FLOP (0 for none).

        Source: Isaev et al., SC'23, doi:10.1145/3581784.3607102, section 3.2 (size-dependent efficiency).
        """
        return flops / (self.peak * self.efficiency.at(flops))

    def long_time(self, flops: Flops) -> Seconds:
        """Return the time of operations at the rate of long ones: beside memory traffic, starting costs nothing."""
        return flops / (self.peak * self.efficiency.efficiencies[-1])
