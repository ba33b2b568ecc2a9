"""Scalar twin of serving: passes, memory and steady state of one deployment in plain Python, from the documents.

Deployments without drafts, pools and groups of attention, of models with RMSNorm, gated MLPs, rotary positions or
latents, windows and experts; machines whose kernels have the published laws. What serving has in common with training,
collectives of the library, comes from the package; everything else is written out.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np

from calculon import inputs
from calculon.base.frozen import dataclass
from calculon.hardware.collectives.algorithm_times import AUTO, group_time
from calculon.hardware.collectives.placement import Group

Document = dict[str, Any]

STORED = {
    "bfloat16": 2,
    "float16": 2,
    "float8": 1,
    "float8_block": 1 + 4 / 16384,
    "int8": 1,
    "int4_g128": 66.5 / 128,
    "mxfp4": 17 / 32,
    "mxfp4_mxfp8": 17 / 32,
    "nvfp4": 9 / 16,
}
"""Bytes of a weight by type, with its share of scales."""

OWN = {
    "float8": "float8",
    "float8_block": "float8",
    "mxfp4": "float4",
    "mxfp4_mxfp8": "float8",
    "nvfp4": "float4",
}
"""Types whose products convert their inputs, where an engine has them."""

OPERAND = {"float8": 1, "float4": 0.5}
CACHED = {"bfloat16": 2, "float16": 2, "float8": 1, "int8": 1}
FRACTIONS = 16


def padded(curve: list[list[float]], unit: float, size: float) -> float:
    """Return a size over the efficiency of its step, or of a larger size where this is less."""
    steps = [(threshold * unit, share) for threshold, share in curve]
    own = next(share for threshold, share in steps if size >= threshold)
    further = [threshold / share for threshold, share in steps if threshold >= size > 0]
    return min([size / own, *further])


@dataclass(frozen=True)
class Pass:
    """The time of a pass: of all blocks, of what the first stage and the last have beside, and of all."""

    blocks: float
    first: float
    last: float

    @property
    def time(self) -> float:
        return self.blocks + self.first + self.last


class Twin:
    """A model, a deployment, a machine and a load, of plain documents."""

    def __init__(
        self, model: Document, deployment: Document, system: Document, load: Document
    ) -> None:
        self.model, self.machine, self.load = model, system, load
        self.system = inputs.system(system)
        self.deployment = d = {
            "head_dtype": "bfloat16",
            "batching": "continuous",
            "admission": "reserve",
            "graphs": True,
            "shared_heads": True,
            "request_time": 0.0,
            "sequence_host": 0.0,
            "async_host": False,
            "memory_share": "free",
            "graph_tokens": math.inf,
            **deployment,
        }
        self.t, self.p, self.e = d["tensor_par"], d["pipeline_par"], d["expert_par"]
        self.h, self.vocab, self.blocks = model["hidden"], model["vocab"], model["num_blocks"]
        self.heads = model["attn_heads"] / self.t
        self.latent = model.get("kv_lora_rank", 0)
        self.shared = math.ceil(model.get("kv_heads", model["attn_heads"]) / self.t)
        self.size = model["attn_size"]
        self.value = model.get("v_head_dim", self.size) if self.latent else self.size
        self.floors = system["ext"]["serving"]
        self.cache_bytes = CACHED[d["kv_dtype"]]
        self.wide = self._known("bfloat16")
        self.cached = int(load["prompt"]) - self._computed()
        self.rows: list[tuple[str, int, float]] = []

    # -- the machine

    def _known(self, name: str) -> str:
        known = list(self.machine["matrix"])
        return next(one for one in (name, "bfloat16", "float16", *known) if one in known)

    def _memory(self, moved: float) -> float:
        mem = self.machine["mem1"]
        return padded(mem["MB_efficiency"], 1e6, moved) / (mem["GBps"] * 1e9)

    def _kernel(self, engine: Document, flops: float, moved: float, floor: float) -> float:
        """Return a floor, and the work next to it at the engine's rate; nothing where there is none."""
        rate = engine["tflops"] * 1e12
        arithmetic = padded(engine["gflops_efficiency"], 1e9, flops) / rate
        memory = self._memory(moved)
        adds = self.machine["processing_mode"] == "no_overlap"
        work = arithmetic + memory if adds else max(arithmetic, memory)
        return floor + work if work > 0 else 0.0

    def _row(self, stage: str, count: int, time: float) -> None:
        self.rows.append((stage, count, time))

    def _small(
        self, stage: str, count: int, flops: float, moved: float, floor: str = "vector_floor"
    ) -> None:
        engine = self.machine["vector"][self.wide]
        seconds = self.floors[floor] if floor else 0.0
        self._row(stage, count, self._kernel(engine, flops, moved, seconds))

    def _product(
        self, stage: str, count: int, rows: float, depth: float, width: float, stored: str,
        touched: float = 0.0,
    ) -> None:  # fmt: skip
        """Time a product of so many rows with one matrix, or the experts touched, after conversion of inputs."""
        asked = OWN.get(stored, "float16" if stored == "float16" else "bfloat16")
        engine = self._known(asked)
        operand = OPERAND.get(engine, 2)
        if engine in OPERAND:
            self._small(stage, count, 0.0, rows * depth * (2 + operand))
        weights = (touched or 1.0) * depth * width * STORED[stored]
        moved = rows * depth * operand + rows * width * 2 + weights
        matrix = self.machine["matrix"][engine]
        floor = self.floors["matrix_floor"]
        self._row(stage, count, self._kernel(matrix, 2 * rows * depth * width, moved, floor))

    def _reduce(self, stage: str, count: int, size: float) -> None:
        if self.t == 1:
            return
        group = Group.in_mesh(self.system, np.array([self.t]), np.ones(1, int))
        best = float(group_time(self.system, "all_reduce", np.array([size]), group, AUTO)[0])
        inner, small = self.machine["networks"][0], self.floors["small_reduce"]
        links = self.machine["ext"].get("networks", [{}])
        known = small["latency"]
        if links[0].get("kind") == "nvlink" and self.t <= min(inner["size"], known[-1][0]):
            ranks, seconds = zip(*known, strict=True)
            latency = float(np.interp(math.log2(self.t), np.log2(ranks), seconds))
            wire = size * (self.t - 1) / (small["efficiency"] * inner["bandwidth"] * 1e9)
            best = min(best, latency + wire, 2 * latency + 2 * wire / self.t)
        self._row(stage, count, best)

    # -- a pass

    def one_pass(
        self, decoded: float = 0, context: float = 0, prompts: float = 0, chunk: float = 0,
        cached: float = 0,
    ) -> Pass:  # fmt: skip
        """Time a pass through all stages, one after the other."""
        self.rows, tokens, logits = [], decoded + prompts * chunk, decoded + prompts
        self._small("first", 1, 0.0, 2 * tokens * self.h * 2)
        self._reduce("first", self.t > 1, tokens * self.h * 2)
        self._projections(tokens)
        for number in range(self.blocks):
            self._attention(number, decoded, context, prompts, chunk, cached)
        for number in range(self.blocks):
            self._inner(number, tokens)
        self._reduce("block", 2 * self.blocks, tokens * self.h * 2)
        self._small("last", 1, 4 * logits * self.h, 2 * logits * self.h * 2 + 2 * self.h)
        words = self.vocab / self.t
        self._product("last", 1, logits, self.h, math.ceil(words), self.deployment["head_dtype"])
        self._small("last", 1, 0.0, logits * math.ceil(words) * 4)
        spent = {
            stage: sum(count * time for own, count, time in self.rows if own == stage)
            for stage in ("block", "first", "last")
        }
        waits = 0.0
        if not self.deployment["graphs"] or tokens > self.deployment["graph_tokens"]:
            launched = sum(count for _, count, time in self.rows if time > 0)
            launched -= 2 * self.blocks  # additions to the residual stream run in kernels of norms
            eager = self.system.ext.launch.eager
            waits = max(0.0, launched * eager - sum(spent.values()))
        host = self.deployment.get("pass_host", self.floors["step_host"])
        host += self.deployment["sequence_host"] * logits
        if self.deployment["async_host"]:
            host = max(0.0, host - sum(spent.values()) - waits)
        return Pass(spent["block"] + waits, spent["first"], spent["last"] + host)

    def _projections(self, tokens: float) -> None:
        """Time norms, products with the weights of attention, rotary positions and residual sums, of all blocks."""
        model, n, h = self.model, self.blocks, self.h
        stored = self.deployment["weights_dtype"]
        for _ in range(2):
            self._small("block", n, 4 * tokens * h, tokens * h * 2 + h * 2)
            self._small("block", n, tokens * h, 3 * tokens * h * 2, floor="")
        turned = (self.heads + self.shared) * self.size
        if self.latent:
            rank, nope = model["q_lora_rank"], model["qk_nope_head_dim"]
            rope = model["qk_rope_head_dim"]
            turned = (self.heads + 1) * rope
            queries = self.heads * self.size
            if rank:
                self._product("block", n, tokens, h, rank, stored)
                self._small("block", n, 4 * tokens * rank, 2 * tokens * rank * 2 + 2 * rank)
                self._product("block", n, tokens, rank, queries, stored)
            else:
                self._product("block", n, tokens, h, queries, stored)
            self._product("block", n, tokens, h, self.latent + rope, stored)
            norm = 2 * tokens * self.latent * 2 + 2 * self.latent
            self._small("block", n, 4 * tokens * self.latent, norm)
            made = self.heads * (nope + self.value)
            self._product("block", n, tokens, self.latent, made, stored)
            joined = self.heads * nope + rope + self.heads * self.size
            self._small("block", n, 0.0, tokens * joined * 2)
        else:
            width = (self.heads + 2 * self.shared) * self.size
            self._product("block", n, tokens, h, width, stored)
        self._small("block", n, 6 * tokens * turned, 2 * tokens * turned * 2)
        self._product("block", n, tokens, self.heads * self.value, h, stored)

    def _window(self, number: int) -> float:
        """Return the tokens that a block sees at most: every n-th block sees all."""
        window, every = self.model.get("sliding_window", 0), self.model.get("full_attention_every")
        full = not window or (every and (number + 1) % every == 0)
        return math.inf if full else window

    def _attention(
        self, number: int, decoded: float, context: float, prompts: float, chunk: float,
        cached: float,
    ) -> None:  # fmt: skip
        window, floor = self._window(number), self.floors["attention_floor"]
        engine = self.machine["matrix"][self.wide]
        width = self.latent + self.model.get("qk_rope_head_dim", 0)
        if not self.latent:
            width = 2 * self.shared * self.size
        if prompts:
            seen, keys = min(cached, window), sum_of_keys(cached, chunk, window)
            flops = 2 * prompts * keys * self.heads * (self.size + self.value)
            tokens = prompts * chunk
            own = self.heads if self.latent else self.shared
            moved = 2 * tokens * self.heads * (self.size + self.value) + 4 * tokens * self.heads
            moved += 2 * prompts * (chunk + seen) * own * (self.size + self.value)
            if not self.latent:  # cached ones are read in their type
                moved += prompts * seen * width * (self.cache_bytes - 2)
            self._row("block", 1, self._kernel(engine, flops, moved, floor))
        keys = min(context, window)
        if decoded and keys:
            kv_heads, widths = self.shared, self.size + self.value
            if self.latent:
                kv_heads, widths = 1, 2 * self.latent + self.model["qk_rope_head_dim"]
            elif not self.deployment["shared_heads"]:
                width *= self.heads / self.shared
            law = self.floors["decode_attention"]
            blocks = decoded * kv_heads
            read = decoded * max(keys, law["key_tile"]) * width * self.cache_bytes
            read += decoded * self.heads * widths * 2
            uneven = law["tail"] * law["multiprocessors"] / max(blocks, law["multiprocessors"])
            rate = law["efficiency"] * self.machine["mem1"]["GBps"] * 1e9
            long = engine["tflops"] * 1e12 * engine["gflops_efficiency"][0][1]
            flops = 2 * decoded * keys * self.heads * widths
            self._row("block", 1, floor + max(flops / long, read * (1 + uneven) / rate))

    def _has_experts(self, number: int) -> bool:
        model = self.model
        first, every = model.get("first_k_dense", 0), model.get("moe_layer_freq", 1)
        return model.get("num_experts", 1) > 1 and number >= first and (number - first) % every == 0

    def _inner(self, number: int, tokens: float) -> None:
        """Time the MLP of a block, or its experts."""
        model, h, stored = self.model, self.h, self.deployment["weights_dtype"]
        if not self._has_experts(number):
            self._mlp(tokens, model["feedforward"], stored)
            return
        experts, each = model["num_experts"], model["experts_per_token"]
        self._product("block", 1, tokens, h, experts, "bfloat16")
        local, rows = experts / self.e, tokens * each / self.e
        # chance: the rank with the most rows, and the one with the most activated experts
        most = NormalDist().inv_cdf((self.e - 0.375) / (self.e + 0.25))
        rows *= min(1 + most / math.sqrt(rows), self.e * min(1, local / each))
        share = 1 - (1 - each / experts) ** tokens
        touched = local * share + most * math.sqrt(local * share * (1 - share))
        touched = max(1.0, min(touched, max(local * share, min(local, each * tokens))))
        width = model.get("expert_feedforward", model["feedforward"]) / (self.t / self.e)
        copied = 2 * (tokens + rows) * h
        self._routing(tokens * experts * 10, tokens * experts * 12)
        self._routing(0.0, copied)
        self._product("block", 1, rows, h, 2 * width, stored, touched)
        self._function(rows * width, 7)  # and times the scores
        self._product("block", 1, rows, width, h, stored, touched)
        self._routing(tokens * each * h, copied)
        if shared := model.get("shared_feedforward", 0):
            self._mlp(tokens, shared, stored)
            self._small("block", 1, tokens * h, 3 * tokens * h * 2)

    def _mlp(self, tokens: float, width: int, stored: str) -> None:
        self._product("block", 1, tokens, self.h, 2 * width / self.t, stored)
        self._function(width * tokens / self.t, 6)
        self._product("block", 1, tokens, width / self.t, self.h, stored)

    def _function(self, elements: float, each: int) -> None:
        """Time the function of an MLP: of whole elements, as in training."""
        count = math.floor(elements)
        self._small("block", 1, each * count, 3 * count * 2)

    def _routing(self, flops: float, moved: float) -> None:
        self._small("block", 1, flops, moved, floor="routing_floor")

    # -- stages

    def _handed(self, tokens: float) -> float:
        if self.p == 1:
            return 0.0
        group = Group.in_mesh(self.system, np.array([2]), np.array([self.t]))
        size = np.array([tokens * self.h * 2.0])
        return float(group_time(self.system, "p2p", size, group, AUTO)[0])

    def _slowest(self, one: Pass, tokens: float) -> float:
        if self.p == 1:
            return one.time
        each = one.blocks / self.blocks
        most, fewest = math.ceil(self.blocks / self.p), self.blocks // self.p
        slow = max(each * most + one.first, each * fewest + one.last)
        return slow + self._handed(tokens)

    def _part(self, batch: float) -> float:
        return max(batch / self.p, 1.0)

    def decode(self, batch: float, context: float | None = None) -> float:
        """Return the time in which every sequence has a token."""
        seen = self.load["prompt"] + self.load["output"] / 2 if context is None else context
        part = self._part(batch)
        one = self.one_pass(decoded=part, context=seen)
        if self.p == 1:
            return one.time
        through = one.time + self.p * self._handed(part)
        return max(through, batch / part * self._slowest(one, part))

    def prefill(self, prompts: float = 1) -> tuple[float, float]:
        """Return the time of whole prompts, and that for which the slowest stage is busy."""
        computed = self._computed()
        one = self.one_pass(prompts=prompts, chunk=computed, cached=self.cached)
        tokens = prompts * computed
        return one.time + (self.p - 1) * self._handed(tokens), self._slowest(one, tokens)

    def _computed(self) -> int:
        return max(1, math.ceil(self.load["prompt"] * (1 - self.load.get("prefix_hit", 0))))

    # -- the steady state

    def steady(self, batch: int) -> dict[str, float]:
        """Return the figures of a replica that always has so many sequences."""
        output, computed = self.load["output"], self._computed()
        steps, budget = output - 1, self.deployment["token_budget"]
        if self.deployment["batching"] == "static":
            return self._static(batch, steps)
        decode = self.decode(batch)
        if not budget:
            latency, busy = self.prefill()
            passes, together, longest = 1.0, 1.0, decode + busy
            added = busy
        else:
            part = self._part(batch)
            count = math.ceil(computed / max(1, budget - part))
            together = max(1.0, count * part / steps)
            chunk = computed / count
            before = self.cached + (count - 1) / 2 * chunk
            seen = self.load["prompt"] + output / 2
            both = self.one_pass(part, seen, together, chunk, before)
            plain = self.one_pass(decoded=part, context=seen)
            tokens = part + together * chunk
            slow = self._slowest(both, tokens)
            longest = slow if self.p == 1 else decode + slow - self._slowest(plain, part)
            latency = both.time + (self.p - 1) * self._handed(tokens) + (count - 1) * slow
            passes, added = count / together, longest - decode
            last = self.one_pass(part, seen, together, chunk, self.cached + (count - 1) * chunk)
            grown = last.time if self.p == 1 else decode + self._slowest(last, tokens)
            longest = grown if self.p == 1 else grown - self._slowest(plain, part)
        rate = 1 / (passes * added + steps * decode / batch)
        share = rate * passes * added
        tpot = decode / (1 - share)
        latency += self._collisions(
            max(batch - together, 0), latency, passes * added, decode, steps
        )
        latency += self.deployment["request_time"]
        return {
            "decode_time": decode,
            "ttft": latency,
            "tpot": tpot,
            "itl_max": max(longest, tpot),
            "request_rate": rate,
            "output_rate": rate * output,
            "prefill_share": share,
            "request_latency": latency + steps * tpot,
        }

    @staticmethod
    def _collisions(beside: float, latency: float, busy: float, decode: float, steps: int) -> float:
        """Prompts of others before one's own, by the arrival theorem, and half of the pass that decodes."""
        others = beside * busy
        share = others / (latency + steps * decode + others)
        queue = min(others, busy * share / (1 - share) / 2)
        return queue + min(beside, 1) * (1 - share) * decode / 2

    def _static(self, batch: int, steps: int) -> dict[str, float]:
        parts = min(FRACTIONS, steps)
        middles = [self.load["prompt"] + 0.5 + steps * (n + 0.5) / parts for n in range(parts)]
        decode = sum(self.decode(batch, middle) for middle in middles) / parts
        latency = self.prefill(batch)[0]
        rate = batch / (latency + steps * decode)
        first = self.deployment["request_time"] + latency
        return {
            "ttft": first,
            "tpot": decode,
            "request_rate": rate,
            "output_rate": rate * (steps + 1),
            "prefill_share": rate * latency / batch,
            "request_latency": first + steps * decode,
        }

    # -- memory of a rank

    def weights(self) -> float:
        """Return the bytes of the weights on a rank of the stage with the most."""
        model, h = self.model, self.h
        stored = STORED[self.deployment["weights_dtype"]]
        narrow, wide = 0.0, 0.0  # weights in their type, and in 16 bits
        for number in range(self.blocks):
            wide += 2 * h
            if self.latent:
                rank, rope = model["q_lora_rank"], model["qk_rope_head_dim"]
                queries = self.heads * self.size
                narrow += h * rank + rank * queries if rank else h * queries
                narrow += h * (self.latent + rope)
                narrow += self.latent * self.heads * (model["qk_nope_head_dim"] + self.value)
                wide += rank + self.latent
            else:
                narrow += h * (self.heads + 2 * self.shared) * self.size
            narrow += self.heads * self.value * h
            if not self._has_experts(number):
                narrow += 3 * h * model["feedforward"] / self.t
                continue
            width = model.get("expert_feedforward", model["feedforward"])
            wide += h * model["num_experts"]
            narrow += (
                3 * h * (model["num_experts"] * width + model.get("shared_feedforward", 0)) / self.t
            )
        whole = narrow * stored + 2 * wide
        words = math.ceil(self.vocab / self.t)
        table, head = words * h * 2, words * h * STORED[self.deployment["head_dtype"]]
        if self.p == 1:
            return whole + table + (0 if model.get("tied") else head)
        each = whole / self.blocks
        return max(
            math.ceil(self.blocks / self.p) * each + table, self.blocks // self.p * each + head
        )

    def activation(self) -> float:
        """Return the bytes of the largest live tensors of a pass, but for logits."""
        model = self.model
        inner = model["feedforward"]
        if model.get("num_experts", 1) > 1:
            kinds = {self._has_experts(number) for number in range(self.blocks)}
            own = model.get("expert_feedforward", inner) * model["experts_per_token"]
            inner = max(own, inner) if len(kinds) == 2 else own
            inner += model.get("shared_feedforward", 0)
        queries = self.heads * self.size
        block = (3 * self.h + 3 * inner / self.t + queries + self._cached_width()) * 2
        mixes = self.deployment["batching"] == "continuous" and self.deployment["token_budget"]
        return block * (mixes or self._computed())

    def _cached_width(self) -> float:
        if self.latent:
            return self.latent + self.model["qk_rope_head_dim"]
        return 2 * self.shared * self.size

    def cache(self, length: float) -> float:
        """Return the bytes that a sequence has on a rank of the stage with the most blocks."""
        filled = length + (self.deployment["kv_block"] - 1) / 2
        tokens = sum(min(filled, self._window(number)) for number in range(self.blocks))
        share = math.ceil(self.blocks / self.p) / self.blocks
        return tokens * share * self._cached_width() * self.cache_bytes

    def logits(self) -> float:
        """Return the bytes of a row of logits."""
        return math.ceil(self.vocab / self.t) * 4

    def fitting(self) -> float:
        """Return the sequences that fit."""
        d = self.deployment
        whole, reserve = self.machine["mem1"]["GiB"] * 2**30, d["reserve_gib"] * 2**30
        free, part = whole - self.weights() - self.activation(), d["memory_fraction"]
        if d["memory_share"] == "free":
            granted, each_logits = part * (free - reserve), part
        else:
            granted, each_logits = part * whole - self.weights(), 1
            granted -= self.activation() if d["memory_share"] == "total" else 0
            granted = min(max(0.0, granted), free)
        admitted = self.load["output"] / (1 if d["admission"] == "reserve" else 2)
        once = self.cache(self.cached) if self.cached else 0.0
        room = max(0.0, granted - once)
        each = self.cache(self._computed() + admitted) + each_logits * self.logits()
        return math.floor(room / each)

    def memory(self, batch: int) -> dict[str, float]:
        """Return what a rank holds with so many sequences."""
        held = batch * self.cache(self._computed() + self.load["output"] / 2)
        return {
            "mem_weights": self.weights(),
            "mem_activation": self.activation() + batch * self.logits(),
            "mem_cache": held + (self.cache(self.cached) if self.cached else 0.0),
        }


def sum_of_keys(cached: float, chunk: float, window: float) -> float:
    """Return the keys of all tokens of a chunk, whole or not: of a token the cached ones and those up to itself."""
    rising = min(max(window - cached, 0.0), chunk)
    seen = rising * cached + rising * (rising + 1) / 2
    return seen + ((chunk - rising) * window if rising < chunk else 0.0)
