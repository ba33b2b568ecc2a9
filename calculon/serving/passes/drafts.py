"""Drafts of speculative decoding: their passes, weights and KV cache, in addition to the model that verifies.

A smaller model runs one pass per drafted token and has its own KV cache. A multi-token prediction module has one block;
it shares embedding and LM head with the model, and is applied repeatedly if more tokens are drafted than there are
modules. Before drafting, either processes the prompts of the model. Drafts run after the verification, on the ranks of
the last stage, split like the model. Drafting from the text so far (n-grams) needs no pass; its search is not counted.

Sources: Leviathan et al., arXiv 2211.17192, algorithm 1; DeepSeek-V3, arXiv 2412.19437, section 2.2; TensorRT-LLM,
*DeepSeek R1 MTP Implementation and Optimization*, 2025 (MTP Vanilla, MTP Eagle).
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from calculon import inputs
from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Bytes, Count
from calculon.declarations.model import Model
from calculon.hardware.system import System
from calculon.serving.caches.cache import CachedBlocks, cached_width, check_served
from calculon.serving.passes.exchange import FASTEST_EXCHANGE
from calculon.serving.passes.pass_rows import ROWS, pass_rows
from calculon.serving.passes.pass_sizes import PassSizes
from calculon.serving.passes.row_times import QUANTITIES, PassTimes, RowTime, pass_times
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.number_types import NumberTypes
from calculon.serving.records.speculation import MTP, Speculation, draft_name

PADDING = 0.01
"""Relative difference allowed between vocabularies of one tokenizer, which models pad to different multiples."""


@dataclass(frozen=True)
class Draft:
    """Source of drafted tokens, with the passes that draft them.

    Attributes:
        speculation: Number of drafted tokens, and their acceptance.
        model: A smaller model, or the served model if its prediction modules draft; None if drafting needs no pass.
        modules: Number of modules that draft; 0 for a smaller model.
    """

    speculation: Speculation = Speculation()
    model: Model | None = None
    modules: int = 0

    @property
    def module(self) -> bool:
        """True if prediction modules of the served model draft."""
        return self.modules > 0

    def sequence_bytes(
        self, length: Count | float, tensor_par: Count, element_bytes: float
    ) -> Bytes | float:
        """Return the bytes that a rank caches for the draft of a sequence, in addition to the model's KV cache."""
        if self.model is None:
            return 0.0
        blocks = CachedBlocks.of_last(self.model) if self.module else CachedBlocks.of(self.model)
        tokens = max(1, self.modules) * blocks.tokens(np.asarray(length, float))
        return tokens * cached_width(self.model, tensor_par) * element_bytes

    def sizes(self, step: PassSizes) -> PassSizes:
        """Return the sizes of the first drafting pass of a step, which also processes the prompts of the step."""
        assert self.model is not None
        mixes = self.model.mixes
        experts = step.expert_par if mixes else np.ones_like(step.expert_par)
        copies = step.copies if mixes else np.zeros_like(step.copies)
        rows = step.decoded + step.prompts
        split = {
            "expert_par": experts,
            "copies": copies,
            "context_par": np.ones_like(step.context_par),
        }
        return replace(step, **split, verified=np.ones_like(step.verified), logits=rows)

    def passes(self, step: PassSizes) -> Iterator[tuple[PassSizes, Count]]:
        """Yield the sizes of the drafting passes of steps, each with its number of repetitions."""
        if self.model is None:
            return
        first, nothing = self.sizes(step), np.zeros(step.count)
        yield first, np.ones(step.count)
        if further := self.speculation.tokens - 1:
            # steps that only prefill draft once; their further passes count zero times
            some = step.decoded > 0
            decoded = np.where(some, step.decoded, 1.0)
            alone = replace(
                first,
                decoded=decoded,
                prompts=nothing,
                chunk=nothing,
                cached=nothing,
                # the mean over the further passes, each of which sees one more token
                context=first.context + (further + 1) / 2,
                logits=decoded,
            )
            yield alone, np.where(some, float(further), 0.0)

    def after(
        self,
        times: PassTimes,
        system: System,
        types: NumberTypes,
        step: PassSizes,
        *,
        graphs: bool | Array = True,
        shared_heads: bool = True,
        routing: str = "balanced",
        exchange: str = FASTEST_EXCHANGE,
        overlap: str = "none",
    ) -> PassTimes:
        """Return the times of steps including their drafts, whose rows are named ``draft``.

        Args:
            times: Times of the verifications and everything else in the steps.
            system, types, step, graphs, shared_heads, routing, exchange, overlap: As for the verifications.
        """
        added, rows = np.zeros(step.count), list(times.rows)
        for sizes, count in self.passes(step):
            assert self.model is not None
            draft_rows = pass_rows(
                self.model,
                types,
                sizes,
                shared_heads=shared_heads,
                routing=routing,
                exchange=exchange,
                overlap=overlap,
                module=self.module,
            )
            drafted = pass_times(
                self.model, system, draft_rows, sizes, graphs=graphs, overlap=overlap, step=False
            )
            added = added + count * drafted.time
            rows += [_drafting(row, count) for row in drafted.rows]
        return replace(
            times,
            rows=tuple(sorted(rows, key=lambda row: ROWS.index(row.name))),
            time=times.time + added,
            last=times.last + added,
        )


def _drafting(row: RowTime, count: Count) -> RowTime:
    """Return a row of a draft, repeated `count` times; host time keeps its own row."""
    many = {name: count * getattr(row, name) for name in QUANTITIES}
    name = row.name if row.name == "host" else "draft"
    return replace(row, name=name, stage="last", **many)


def speculation_of(model: Model, deployment: Deployment) -> Speculation:
    """Return the speculation of a deployment with a model; errors as in :meth:`Speculation.of`."""
    d = deployment
    return Speculation.of(d.draft, d.draft_tokens, d.acceptance, d.accepted, model.mtp_layers)


def draft_of(model: Model, deployment: Deployment) -> Draft:
    """Return the draft of a deployment.

    Raises:
        SpecError: As in :func:`speculation_of`; if there is no such model, or its vocabulary differs from the served
            model's.
    """
    speculation = speculation_of(model, deployment)
    if speculation.draft == MTP:
        return Draft(speculation, model, min(speculation.tokens, model.mtp_layers))
    name = draft_name(speculation.draft)
    if not name:
        return Draft(speculation)
    draft = inputs.model(name)
    check_served(draft)
    # a verification compares token ids, so both models have to share a tokenizer
    if abs(draft.vocab / model.vocab - 1) > PADDING:
        wanted = f"a model with the vocabulary of {model.name} (vocab={model.vocab})"
        found = f"{draft.name} with vocab={draft.vocab}"
        raise SpecError(deployment.name, Problem("draft", wanted, found))
    return Draft(speculation, draft)


def split_problems(draft: Draft, deployment: Deployment) -> Iterator[Problem]:
    """Yield the reasons why a draft model cannot be split like the served model."""
    model = draft.model
    if model is None or draft.module:
        return
    if model.attn_heads % deployment.attention_par:
        name = "tensor_par" if deployment.attn_data_par == 1 else "tensor_par / attn_data_par"
        wanted = f"a model with attn_heads divisible by {name}={deployment.attention_par}"
        yield Problem("draft", wanted, f"{model.name} with attn_heads={model.attn_heads}")
    if model.mixes and model.num_experts % deployment.expert_par:
        wanted = f"a model with num_experts divisible by expert_par={deployment.expert_par}"
        yield Problem("draft", wanted, f"{model.name} with num_experts={model.num_experts}")
