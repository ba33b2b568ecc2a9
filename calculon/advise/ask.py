"""Question about a training run: model, machine, processors, framework, batch, and assumptions for the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from calculon import inputs
from calculon.advise.shorthand import StatedPlan, read_baseline
from calculon.architecture.parameters import active_count
from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.campaign.record import Campaign
from calculon.campaign.run_columns import tokens_of_run
from calculon.declarations import arguments
from calculon.declarations.model import Model
from calculon.declarations.named_values import CORRECTED
from calculon.declarations.presets import COMMON, FEW, FRAMEWORK, ON_FEW, Preset, find_preset
from calculon.declarations.recipes import NO_RECIPE, RECIPES
from calculon.declarations.spellings import (
    PRECISIONS,
    precision,
    precision_word,
    processor_counts,
    tokens,
)
from calculon.declarations.statistics import RISK
from calculon.declarations.usual_batch import requested_batch, sequences_in_words
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.search.request import check_one_stretch, default_preset, with_sequences
from calculon.search.within_risk import read_risk

if TYPE_CHECKING:
    from calculon.launch.dialect import Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Resolved question of a plan.

    Attributes:
        model, system: Model to train, and machine to train it on.
        preset: Framework that runs the training.
        framework: The framework as stated: its name, or its file.
        num_procs: Processor counts; the first one is planned in detail.
        batch_size: Sequences per step.
        tokens: Tokens of the whole training run.
        arithmetic: Fields of the execution that follow from the precision.
        mine: Baseline plan to compare with the best one.
        fix, add: Values that execution fields are restricted to, and values to try in addition to the usual ones.
        assumed: Defaults that were filled in, by the option that states them.
        campaign: Failures, checkpoints and prices of the whole training run.
        risk: Accepted probability that a recommended plan runs out of memory.
    """

    model: Model
    system: System
    preset: Preset
    framework: str
    num_procs: tuple[int, ...]
    batch_size: int
    tokens: float | None
    arithmetic: Mapping[str, Any]
    mine: StatedPlan | None
    fix: Mapping[str, Any] = field(default_factory=dict)
    add: Mapping[str, Any] = field(default_factory=dict)
    assumed: Mapping[str, str] = field(default_factory=dict)
    campaign: Campaign = Campaign()
    risk: float = RISK

    @property
    def datatype(self) -> str:
        """Storage type of weights and activations."""
        return str(self.arithmetic["datatype"])

    @property
    def fixed(self) -> dict[str, Any]:
        """Fields that a search keeps fixed: batch, arithmetic (except the storage type), and stated restrictions."""
        arithmetic = {name: one for name, one in self.arithmetic.items() if name != "datatype"}
        return {"batch_size": self.batch_size, **arithmetic, **self.fix}

    @property
    def counts(self) -> tuple[int, ...]:
        """Processor counts to compare: the stated ones, or half and twice the only one."""
        if len(self.num_procs) > 1:
            return self.num_procs
        (only,) = self.num_procs
        most = most_processors(self.system)
        return tuple(n for n in (only // 2, only, only * 2) if 1 <= n <= most)

    @property
    def tokens_per_step(self) -> int:
        """Tokens per step."""
        return self.batch_size * self.model.seq_size


def ask(
    model: Source | Model,
    num_procs: int | str | Sequence[int],
    system: Source | System,
    *,
    preset: str | None = None,
    tokens_of_run: float | str | None = None,
    batch: int | str | None = None,
    seq: int | str | None = None,
    dtype: str | None = None,
    mine: Source | None = None,
    fix: Mapping[str, Any] | None = None,
    add: Mapping[str, Any] | None = None,
    campaign: Campaign | None = None,
    risk: float | str | None = None,
) -> Question:
    """Read a question in the words that people use.

    Raises:
        SpecError: For malformed input, with suggestions.
    """
    assumed: dict[str, str] = {}
    machine = inputs.system(system)
    counts = _counts(num_procs, machine)
    own = None if mine is None else read_baseline(mine, counts[0])
    # A launch file answers what the caller leaves open: both plans then answer one question.
    if own is not None and own.launch is not None:
        asked = {"seq": seq, "preset": preset, "dtype": dtype, "batch": batch}
        said = {name: one for name, one in _said_by(own.launch).items() if asked[name] is None}
        assumed |= {f"--{name}": f"{words}, as {own.file}" for name, (_, words) in said.items()}
        taken = {name: value for name, (value, _) in said.items()}
        seq, batch = taken.get("seq", seq), taken.get("batch", batch)
        preset, dtype = taken.get("preset", preset), taken.get("dtype", dtype)
    shape = _with_sequences(model, seq, assumed)
    arithmetic = precision("bf16" if dtype is None else str(dtype))
    stated = {} if own is None or own.fields is None else own.fields
    usual = default_preset(shape, machine, max(counts), arithmetic, stated, fix or {}, add or {})
    framework = _framework(preset, usual, shape.mixes and max(counts) < FEW, assumed)
    _check_runs(machine, str(dtype), arithmetic)
    if dtype is None:
        assumed["--dtype"] = "bf16"
    run = campaign or Campaign()
    check_one_stretch(run)
    batch_size = _batch(batch, shape.seq_size, counts[0], assumed)
    return Question(
        model=shape,
        system=machine,
        preset=framework,
        framework=framework.name if preset is None else preset,
        num_procs=counts,
        batch_size=batch_size,
        tokens=_tokens(tokens_of_run, run, shape, batch_size),
        arithmetic=arithmetic,
        mine=None if own is None else own.of_model(shape.seq_size),
        fix=dict(fix or {}),
        add=dict(add or {}),
        assumed=assumed,
        campaign=run,
        risk=RISK if risk is None else read_risk(risk),
    )


def _tokens(
    stated: float | str | None, campaign: Campaign, model: Model, batch_size: int
) -> float | None:
    """Return the tokens of the run, as stated or from its campaign; None if neither states them."""
    if stated is not None:
        return float(tokens(str(stated)))
    if campaign.tokens is None and campaign.steps is None and campaign.loss is None:
        return None
    return tokens_of_run(campaign, float(active_count(model)), batch_size * model.seq_size)


def _said_by(launch: "Launch") -> dict[str, tuple[str, str]]:
    """Return the answers of a launch file by option: each value, and its description."""
    said = launch.execution
    base, batch = str(said["base"]), int(said["batch_size"])
    length = int(said.get("seq_length", 0))  # a DeepSpeed configuration has none: the model's
    found = {"preset": (base, base), "batch": (str(batch), sequences_in_words(batch))}
    if length:
        found["seq"] = (str(length), f"{length:,} tokens")
    word = precision_word(said)
    return found if word is None else {**found, "dtype": (word, word)}


def _check_runs(system: System, dtype: str, arithmetic: Mapping[str, str]) -> None:
    """Refuse a precision that the system does not support, naming the option as the user wrote it."""
    recipe = arithmetic.get("fp8_recipe", NO_RECIPE)
    if recipe == NO_RECIPE or recipe in system.recipes:
        return
    words = [
        word
        for word, fields in PRECISIONS.items()
        if fields["datatype"] in system.datatypes
        and fields.get("fp8_recipe", NO_RECIPE) in (NO_RECIPE, *system.recipes)
    ]
    wanted = f"a precision that {system.name} supports: {', '.join(words)}"
    hint = f"the system file states no {RECIPES[recipe].product} matmul rate"
    # The rate may be stated while the recipe (block size of scales) belongs to another
    # architecture.
    if RECIPES[recipe].product in {*system.matrix, *(system.ext.matrix or {})}:
        hint = f"recipe {recipe} needs other processors"
    raise SpecError("--dtype", Problem("", wanted, dtype, hint))


MAX_COUNTS = 100
"""Maximum number of processor counts in a question."""


def _counts(given: int | str | Sequence[int], system: System) -> tuple[int, ...]:
    """Return the requested processor counts.

    Raises:
        SpecError: For malformed counts, and for none or too many of them.
        Infeasible: For more processors than the networks of the system connect.
    """
    if isinstance(given, str):
        counts = processor_counts(given)
    else:
        several = given if isinstance(given, Sequence) else (given,)
        counts = tuple(dict.fromkeys(arguments.count(one, "num_procs", "plan") for one in several))
    if not 0 < len(counts) <= MAX_COUNTS:
        wanted = f"1 to {MAX_COUNTS} processor counts"
        raise SpecError("plan", Problem("num_procs", wanted, f"{len(counts):,} of them"))
    if (most := max(counts)) > (there := most_processors(system)):
        words = f"the networks of {system.name} connect {there:,} processors, {most - there:,} fewer than {most:,}"
        last = max(range(len(system.networks)), key=lambda i: system.networks[i].size)
        # The sides of a torus fix its size.
        if not any(link.torus for link in system.ext.networks[last : last + 1]):
            words += f". Hint: --set networks[{last}].size={most} assumes a larger network"
        raise Infeasible("mesh_size", words)
    return counts


def most_processors(system: System) -> int:
    """Return the number of processors that the largest network connects."""
    return max(network.size for network in system.networks)


def _with_sequences(
    source: Source | Model, seq: int | str | None, assumed: dict[str, str]
) -> Model:
    """Return the model with the requested sequence length, or with the default length."""
    model, longest = with_sequences(source, seq)
    if seq is None:
        more = f", of {longest:,} that the model supports" * (model.seq_size < longest)
        assumed["--seq"] = f"{model.seq_size:,} tokens{more}"
    return model


def _framework(
    preset: str | None, usual: str, few_for_experts: bool, assumed: dict[str, str]
) -> Preset:
    """Return the requested preset, or the usual one; without experts another one is usual on few processors."""
    if preset is None:
        why = f", as {ON_FEW} is not modeled for experts"
        assumed["--preset"] = usual + why * (few_for_experts and usual == FRAMEWORK)
        return find_preset(usual)
    result = find_preset(preset)
    if result.published:
        wanted = f"a framework, or {COMMON}, because plans use edition {CORRECTED}"
        hint = "calculon llm-optimal-execution searches with the published presets"
        raise SpecError("plan", Problem("preset", wanted, preset, hint))
    return result


def _batch(batch: int | str | None, length: int, procs: int, assumed: dict[str, str]) -> int:
    """Return the sequences per step: as stated, or from the usual number of tokens."""
    sequences = requested_batch(batch, procs, length)
    if batch is None:
        assumed["--batch"] = sequences_in_words(sequences)
    return sequences
