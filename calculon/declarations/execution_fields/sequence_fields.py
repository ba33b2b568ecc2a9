"""Fields of long and packed sequences: context parallelism (ring attention, Ulysses) and document packing."""

from calculon.base.frozen import dataclass
from calculon.declarations.execution_fields.expert_fields import ExpertFields
from calculon.declarations.fields import ABOVE_ONE, BATCH, BLOCK, LAYOUT, STEP, declare
from calculon.declarations.named_values import (
    BETWEEN_PARTS,
    CP_BALANCES,
    CP_EXCHANGES,
    HEAD_EXCHANGES,
    RINGS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceFields(ExpertFields):
    """Fields of long and packed sequences."""

    context_par: int = declare(
        "context-parallel degree (CP): each rank of a group has a part of every sequence, and all weights",
        at_least=1,
        default=1,
        scope=BLOCK | STEP | BATCH,
        label="context parallelism {}",
        mark="CP {}",
        adds="context-parallel degrees",
        samples=(2,),
        searched="option",
        control="Context parallel (CP)",
    )
    context_par_net: int = declare(
        "network of the context-parallel groups",
        at_least=0,
        default=0,
        scope=BLOCK | BATCH,
        label="context parallelism on network {}",
        mark="CP on {}",
        needs={"context_par": ABOVE_ONE},
        why="sequences are split",
        adds="networks of the context-parallel groups",
        samples=(1,),
        searched="option",
        of="circumstance",
        with_="mesh_order",
    )
    cp_comm: str = declare(
        "exchange of keys and values in context parallelism: p2p, parts circulate in a ring (ring attention); "
        "all_gather, every rank gathers all of them; a2a, an all-to-all gives each rank all tokens for its share of "
        "the heads (Ulysses); a2a_p2p, a2a inside groups of cp_a2a_size ranks, and a ring between the groups",
        choices=CP_EXCHANGES,
        default="p2p",
        scope=LAYOUT,
        label="keys and values by {}",
        mark="CP by {}",
        needs={"context_par": ABOVE_ONE},
        why="sequences are split",
        adds="exchanges of keys and values",
        control="CP exchange",
    )
    cp_a2a_size: int = declare(
        "with cp_comm a2a_p2p: ranks that exchange heads with each other, neighbors in a mesh",
        at_least=0,
        default=0,
        scope=BLOCK | BATCH,
        label="heads exchanged over {} ranks",
        mark="over {}",
        needs={"cp_comm": ("a2a_p2p",)},
        adds="numbers of ranks that exchange heads",
        samples=(2,),
    )
    cp_kv_replicate: bool = declare(
        "if heads are exchanged: copy key and value heads that are fewer than the ranks, so that each rank has one",
        default=False,
        scope=LAYOUT,
        label="key and value heads copied",
        mark="copied KV heads",
        needs={"cp_comm": HEAD_EXCHANGES},
        why="heads are exchanged",
        adds="true: copies of key and value heads",
    )
    cp_balance: str = declare(
        "tokens of a sequence on each rank: zigzag, a part from the front and its mirror image from the end; "
        "contiguous, one part; striped, every n-th token",
        choices=CP_BALANCES,
        default="zigzag",
        scope=LAYOUT,
        label="{} parts of sequences",
        mark="{}",
        needs={"context_par": ABOVE_ONE, "cp_comm": BETWEEN_PARTS},
        why="ranks have the queries of a part of a sequence",
        adds="distributions of tokens over ranks",
        control="CP parts of a sequence",
    )
    cp_skip: bool = declare(
        "in a ring: do not send parts that no query of a rank attends to because they lie beyond its window",
        default=False,
        scope=LAYOUT,
        label="parts beyond windows skipped",
        mark="skips parts",
        needs={"context_par": ABOVE_ONE, "cp_comm": RINGS},
        why="there is a ring",
        adds="true: unattended parts of sequences are not sent",
    )

    packed_percent: int = declare(
        "packed sequences: 100 times the sum of squared document lengths over (the sum of lengths x tokens of a "
        "sequence): the share of its sequence that a token can attend to, since no document attends to another; 100: "
        "one document per sequence. Only attention and model FLOP depend on it; windows treat documents as equal. "
        "Padding tokens are not modeled",
        unit="%",
        at_least=1,
        at_most=100,
        default=100,
        scope=BLOCK | BATCH,
        label="documents of {} % of a sequence",
        mark="packed {} %",
        needs={"attn_impl": ("flash",)},
        why="a fused kernel knows where documents begin",
        adds="lengths of the documents of packed sequences",
        samples=(40,),
        of="circumstance",
    )
    pack_imbalance_percent: int = declare(
        "packed sequences: the sum of squared document lengths on the slowest rank over the mean. Attention takes "
        "longer by this factor in every microbatch, without counting FLOP: the other ranks wait, and pipeline stages "
        "wait for the slowest of the microbatches in flight",
        unit="% of the mean",
        at_least=100,
        default=100,
        scope=BLOCK,
        label="{} % of the mean attention on the slowest rank",
        mark="packs {} %",
        needs={"packed_percent": range(1, 100)},
        why="sequences have several documents",
        adds="imbalances of packed sequences",
        samples=(130, 240),
        of="circumstance",
    )
