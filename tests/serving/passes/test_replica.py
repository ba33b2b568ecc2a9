"""Passes of replicas whose stages hand their rows on: times as sums of what stages take."""

from dataclasses import replace

import numpy as np

from calculon.serving.passes.replica import Replica
from calculon.serving.records.deployments import Deployments
from calculon.serving.records.read_records import read_deployment, read_workload
from tests.cases import for_each
from tests.serving.given import LOAD, PLAIN, SMALL

EXPERTS = replace(SMALL, num_experts=16, experts_per_token=2, expert_feedforward=512)
NGRAM = {"draft": "ngram", "draft_tokens": 3, "acceptance": 0.5}
SPLITS = [2 * row for row in ([1, 2, 2, 2], [2, 2, 2, 8], [1, 1, 2, 2])]
BATCH = np.repeat([1.0, 64], 4)
STAGES, _, GROUPS = map(np.array, SPLITS)
LINKS = [PLAIN.networks[number] for number in 2 * (0, 0, 0, 1)]
LATENCY, RATE = np.array([(one.latency, one.bandwidth * one.efficiency) for one in LINKS]).T
"""Of the network that links the stages of each deployment: 8 ranks are a node."""


def in_stages(**changes):
    """Return replicas of one stage, and of two with different splits."""
    names = ("pipeline_par", "tensor_par", "attn_data_par")
    splits = [
        {"num_procs": 16, **dict(zip(names, row, strict=True))} for row in zip(*SPLITS, strict=True)
    ]
    records = [read_deployment(split | changes) for split in splits]
    return Replica(EXPERTS, PLAIN, Deployments.of_records(records), read_workload(None, LOAD))


def handed(rows):
    """Return the time in which stages hand on rows in 16 bits: each group of ranks its own."""
    own = rows / GROUPS * EXPERTS.hidden * 2
    return np.where(STAGES > 1, LATENCY + own / RATE, 0.0)


def slowest(times):
    """Return the time of the slowest stage: each has its share of the blocks."""
    ends = np.where(STAGES > 1, np.maximum(times.first, times.last), times.first + times.last)
    return times.blocks / STAGES + ends


@for_each(("changes", "rows"), [({}, 1), (NGRAM, 1 + NGRAM["draft_tokens"])])
def test_each_stage_decodes_its_part_of_the_sequences(changes, rows):
    """A single sequence goes through all; the slowest stage has a pass of each part between two tokens."""
    replica = in_stages(**changes)
    part = np.where(BATCH > 1, BATCH / STAGES, 1.0)
    times, hand = replica.decode_pass(BATCH), handed(part * rows)
    through = times.time + STAGES * hand
    expected = np.maximum(through, BATCH / part * (slowest(times) + hand))
    np.testing.assert_allclose(replica.decode(BATCH), expected)


def test_prompts_go_through_both_stages():
    """Each is handed on once, and the slowest stage has the next one meanwhile; of two lengths each has its share."""
    replica = replace(in_stages(), workload=read_workload(None, LOAD | {"prompt_cv": 0.5}))
    expected = np.zeros((2, 8))
    for one in replica.workload.lengths:
        times = replica.passes(replica.sizes(prompts=GROUPS, chunk=one.computed))
        both = np.array([times.time, slowest(times)]) + handed(GROUPS * one.computed)
        expected += one.share * both
    np.testing.assert_allclose(replica.prefill(GROUPS), expected)


def test_groups_take_chunks_of_prompts_with_their_own_sequences():
    """Each has the token budget for itself; a prompt goes through all stages, of which the slowest sets the pace."""
    budget, prompt, output, batch = 512, LOAD["prompt"], LOAD["output"], np.full(8, 400.0)
    replica = in_stages(token_budget=budget)
    own = batch / STAGES / GROUPS
    count = np.ceil(prompt / (budget - own))
    together = GROUPS * np.maximum(1.0, count * own / (output - 1))
    decode = replica.decode(batch)
    found = replica.prompts_of(batch, decode, replica.workload.lengths[0])
    np.testing.assert_allclose(found.passes, count / together)
    chunk = prompt / count
    sizes = {"decoded": batch / STAGES, "context": replica.workload.context, "prompts": together}
    mixed = replica.passes(replica.sizes(**sizes, chunk=chunk, cached=(count - 1) / 2 * chunk))
    hand, plain = handed(batch / STAGES + together * chunk), handed(batch / STAGES)
    longer = slowest(mixed) + hand - slowest(replica.decode_pass(batch)) - plain
    one_stage = mixed.time - decode
    np.testing.assert_allclose(found.added, np.where(STAGES > 1, longer, one_stage))
    latency = mixed.time + hand + (count - 1) * (slowest(mixed) + hand)
    np.testing.assert_allclose(found.latency, latency)
