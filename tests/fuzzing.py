"""Damaged files of every kind that calculon reads, given to the command that reads them.

Whatever stands in a file, a command answers, or says what is wrong: no traceback, nothing that a
terminal obeys, nothing of a file outside the folder, no more time or memory than :class:`Limits`. ``scripts/fuzz``
tries hundreds of thousands; the suite draws a few hundred. A case is its seed.
"""

import contextlib
import copy
import gzip
import io
import json
import os
import random
import re
import resource
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from calculon.base.frozen import dataclass
from calculon.cli.main import main
from calculon.declarations.files import json_text
from calculon.validate import error_summary as summary
from calculon.validate.user_rows import compare_rows
from tests.declarations.configurations import HUB, llama
from tests.helpers import LLAMA_X64_P4, ROOT, document
from tests.hostile import FILES
from tests.store import cache

EXIT_CODES = (0, 1, 2)
SEARCH = ("loe", "megatron-126M", "8:16:x2", "16", "float16", "a100_80g")

NUMBERS = (
    *(0, -0.0, 1, -1, 2, 3, 24, 4096, 0.25, 1.5, 2**31, 2**53 + 1, 2**63, 10**400),
    *(1e-320, 1e-9, 1e9, -1e300, 1e300, float("nan"), float("inf"), float("-inf")),
)
WORDS = (
    *("", "float16", "full", "none", "true", "1e3", "nan", "x" * 200),
    *("\ud800", "é", "=1+1", "\x1b[31m", "../x", "{a}"),
)
KEYS = ("float32", "ext", "name", "", "base", "networks[0].size", "mem1.GBps", "__class__")
TOKENS = (
    *(b"\0", b"\n", b"\r\n", b"\t", b",", b'"', b"'", b"{", b"}", b"[", b"]", b":", b"- ", b"#"),
    *(b"&a ", b"*a", b"<<: *a", b"!!int x", b"!!bool x", b"!!set {a}", b"!!timestamp x"),
    *(b"!!python/object:os.system x", b"2001-02-03", b"\xff\xfe", b"nan", b"inf", b"-1", b"1e999"),
    *(b"9" * 400, b"null", b"true", b"~", b"|", b">", b"? ", b"%", b"@", b"`"),
)


@dataclass(frozen=True)
class Limits:
    """The most that a command may need: seconds of processor time, and bytes by which resident memory grows."""

    seconds: float = 10.0
    memory: int = 1 << 30


LAUNCH_LIMITS = Limits(seconds=4.0, memory=300 << 20)


@dataclass(frozen=True)
class Target:
    """A kind of file, whole ones to damage, and the command that reads it (``{}`` is the file)."""

    kind: str
    command: tuple[str, ...]
    whole: tuple[Any, ...]
    suffixes: tuple[str, ...]
    damage: Callable[[random.Random, str, bytes], bytes] | None = None
    """What makes a damaged file of a whole one and its suffix; by default what suits its content."""
    options: tuple[tuple[str, ...], ...] = ((),)
    """What may follow the command."""
    limits: Limits = Limits()


@dataclass(frozen=True)
class Case:
    """A damaged file: its seed, its kind, its content, and the command that reads it within some limits."""

    seed: int
    kind: str
    content: bytes
    command: tuple[str, ...]
    limits: Limits = Limits()


def shipped_campaign(name: str) -> dict[str, Any]:
    """Return a campaign that the repository ships."""
    return yaml.safe_load((ROOT / "examples" / "campaigns" / f"{name}.yaml").read_text())


def targets(folder: Path) -> tuple[Target, ...]:
    """Return the kinds of files; results to damage are made in the folder."""
    of_pipeline = {"num_procs": 48, "pipeline_par": 6, "data_par": 2, "batch_size": 32}
    execution = document("examples", "3072_t4_p64_d12_mbs4_full") | of_pipeline
    modern = {**LLAMA_X64_P4}
    written_plans = {"plan": execution, "llama": modern, "spread": SPREAD, "mixture": MIXTURES[0]}
    for name, raw in written_plans.items():
        (folder / f"{name}.json").write_text(json.dumps(raw))
    plan, llama_plan, spread, mixture = (folder / f"{name}.json" for name in written_plans)
    results, table, today = (
        folder / name for name in ("results.json", "results.csv", "today.json")
    )
    for output in (results, table):
        quietly(["-v", "ERROR", *SEARCH, str(output), "-t", "2", "--quiet"])
    few = ("--edition", "corrected", "--fix", "tensor_par=2", "-t", "2", "--quiet")
    quietly(["-v", "ERROR", *SEARCH, str(today), *few])
    stats = folder / "stats.json"
    quietly(["llm", "megatron-126M", str(plan), "a100_80e", str(stats)])
    found, alone, of_today = (json.loads(path.read_text()) for path in (results, stats, today))
    tables = (table.read_bytes(),)
    steps = folder / "steps.csv"
    steps.write_bytes(MEASUREMENTS)
    baseline = json.loads(json_text(summary.document([compare_rows(str(steps))])))
    served, bench = folder / "served.json", folder / "bench.json"
    load = ("--prompt", "1024", "--output", "256", "--users", "8")
    quietly(["-v", "ERROR", "serve", "llama3-8B", "tp=2", "h100_80g_sxm", *load, "-o", str(served)])
    bench.write_text(json.dumps(BENCHMARK))
    models = (document("models", "megatron-126M"), document("models", "llama3-8B"))
    systems = (
        *(document("systems", name) for name in ("a100_80e", "h100_80g_sxm")),
        document("validation/gpt2_ladder", "a100"),  # an overlay, calibrated
    )
    any_form, text, table_text = (".json", ".yaml", ".json.gz"), (".yaml", ".json"), (".csv",)
    h100 = "llama3-8B {} h100_80g_sxm"
    few_splits = "-t 1 --quiet --preset megatron-lm --fix tensor_par=1,2"
    measured, no_test = "calibrate h100_80g_sxm", "--hold-out 0 -o -"
    rows: tuple[tuple[str, str, tuple[Any, ...], tuple[str, ...]], ...] = (
        ("model", f"llm {{}} {plan} a100_80e -", models, any_form),
        ("system", f"llm megatron-126M {plan} {{}} -", systems, any_form),
        ("execution", "llm megatron-126M {} a100_80e -", (execution,), any_form),
        ("modern execution", f"llm {h100} -", (modern,), any_form),
        ("execution and why", f"why {h100}", (modern,), any_form),
        ("campaign", f"campaign {h100.format(llama_plan)} --campaign {{}}", CAMPAIGNS, text),
        ("mixture", f"llm {{}} {spread} h100_80g_sxm -", MIXTURES, any_form),
        ("execution of experts", f"llm {mixture} {{}} h100_80g_sxm -", SPREADS, any_form),
        (
            "search of a mixture",
            f"loe {{}} 4 8 bfloat16 h100_80g_sxm - {few_splits}",
            MIXTURES,
            any_form,
        ),
        ("study", f"study {{}} -o {folder / 'out.csv'} --debug", (STUDY,), text),
        ("result", f"compare a={{}} b={results}", (found, alone), (".json",)),
        ("report", f"report {{}} -o {folder / 'page.html'}", (found,), (".json",)),
        ("question", f"compare a={{}} b={today}", (of_today,), (".json",)),
        (
            "execution of a result",
            "llm megatron-126M {}#8:1 a100_80e -",
            (found, of_today),
            any_form,
        ),
        ("execution of a table", "llm megatron-126M {}#1 a100_80e -", tables, table_text),
        ("table", f"compare a={{}}#0 b={results}", tables, table_text),
        ("log", f"{measured} --collectives {{}} {no_test}", (LOG, COLLECTIVES), (".txt", ".csv")),
        ("products", f"{measured} --gemm {{}} -o -", (PRODUCTS,), table_text),
        (
            "training log",
            f"{measured} --training {{}} --fit mem1 {no_test}",
            (TRAINING,),
            table_text,
        ),
        ("measurements", "lv --rows {}", (MEASUREMENTS,), table_text),
        ("baseline", f"lv --rows {steps} --baseline {{}}", (baseline,), (".json",)),
        ("configuration", "import-model {} -o -", CONFIGURATIONS, (".json",)),
        ("benchmark", f"check {{}} --prediction {served}", (BENCHMARK,), (".json",)),
        (
            "prediction",
            f"check {bench} --prediction {{}}",
            (json.loads(served.read_text()),),
            (".json",),
        ),
    )
    started = "serve llama3-8B {} h100_80g_sxm --prompt 2k --output 100"
    return (
        *(Target(kind, tuple(command.split()), *files) for kind, command, *files in rows),
        *(
            Target(
                f"launch {suffix}", IMPORT, whole, (suffix,), damage, IMPORT_OPTIONS, LAUNCH_LIMITS
            )
            for suffix, whole in _launch_files().items()
            for damage in (None, hostile)
        ),
        Target(
            "deployment", tuple(started.split()), ENGINES, (".sh",), hostile, limits=LAUNCH_LIMITS
        ),
    )


CAMPAIGNS = (
    shipped_campaign("llama3-405B")
    | {"evaluate_every": 500, "evaluate_time": "3min", "spikes": 2}
    | {"fleet": {"price": 2.5, "pue": 1.2, "g_co2_per_kwh": 400}}
    | {"deadline": "900d", "budget_usd": "50M"},
    shipped_campaign("bloom_366B")
    | {"reliability": {"mtbf_processor": "50000h", "spares": 1, "silent": 1e-8, "jitter": 0.01}}
    | {"checkpoints": {"interval": "20min", "levels": 2, "bandwidth": 100}},
    {
        "phases": [
            {"tokens": "chinchilla", "name": "short"},
            {
                "tokens": "50B",
                "seq_size": "32k",
                "batch": 128,
                "execution": {"search": {"fix": {"tensor_par": 8}}},
            },
            {"tokens": "10B", "document_mean": 512, "execution": {**LLAMA_X64_P4}},
        ],
        "reliability": {"mtbf_processor": "never", "elastic": True},
    },
    {"loss": 2.1, "checkpoints": {"mode": "sync", "interval_steps": 100}},
)

IMPORT = ("import-flags", "{}")
IMPORT_OPTIONS = (
    (),
    ("--procs", "64"),
    ("--procs", "64", "-o", "-"),
    ("--procs", "64", "-f", "json"),
    ("--env", "TP=8", "--env", "MODEL=m"),
)


def _launch_files() -> dict[str, tuple[bytes, ...]]:
    """Return public launch files by suffix, and as often small ones, in which little hides what a piece does."""
    files: dict[str, tuple[bytes, ...]] = {}
    for path in sorted((ROOT / "tests/launch/scripts").rglob("*.*")):
        suffix = path.suffix.replace(".slurm", ".sh")
        files[suffix] = (*files.get(suffix, ()), *SMALL.get(suffix, ()), path.read_bytes())
    return files


STUDY = {
    "about": "two models on two systems",
    "models": [
        {"model": "gpt3-13B", "max_batch_size": 64},
        {"model": "megatron-126M", "max_batch_size": 32},
    ],
    "systems": [{"system": "a100_80g", "mem1.GBps": [1536, 3072]}, "h100_80g_nvl8"],
    "num_procs": "8:64:x2",
    "datatype": "float16",
    "objective": "sample_rate",
    "top": 2,
    "quantities": {"dollars": 2.5, "total": "dollars * num_procs"},
    "summary": {"columns": "model", "rows": ["mem1.GBps"], "best": {"rate": "sample_rate"}},
}
CONFIGURATIONS = (llama(), HUB["deepseek-v3"], HUB["qwen3-30B"])
SMALLER = {"hidden": 1024, "feedforward": 4096, "seq_size": 1024, "num_blocks": 8, "vocab": 32000}
FEW_EXPERTS = {"num_experts": 16, "experts_per_token": 4, "expert_feedforward": 512}
MIXTURES = (
    document("models", "deepseek-v3")
    | {"attn_heads": 8, "q_lora_rank": 256, "kv_lora_rank": 256, "first_k_dense": 1}
    | {"shared_feedforward": 512, "shared_gate": True, "router_groups": 4, "router_group_topk": 2}
    | (SMALLER | FEW_EXPERTS),
    document("models", "gpt-oss-20b")
    | {"attn_heads": 16, "kv_heads": 4, "chunked_window": True, "moe_layer_freq": 2, "tied": True}
    | (SMALLER | FEW_EXPERTS),
)
SPREAD = (
    document("examples", "mixtral-8x7B_h100x64")
    | {"num_procs": 8, "tensor_par": 2, "pipeline_par": 2, "data_par": 2, "expert_par": 4}
    | {"pipeline_interleaving": 2, "batch_size": 32, "microbatch_size": 2, "zero_stage": 1}
    | {"moe_imbalance_percent": 120, "moe_capacity_percent": 150, "moe_pad_to_capacity": False}
    | {"recompute_modules": ["moe_act"], "recompute_every": 2, "recompute_blocks": 1}
    | {"dispatch_dtype": "float8", "moe_dispatcher": "alltoall", "ep_overlap": "none"}
)
SPREADS = (
    SPREAD,
    SPREAD
    | {"ep_overlap": "1f1b", "delay_wgrad": True, "dispatch_dtype": "same"}
    | {"recompute_modules": "none", "recompute_every": 1, "recompute_blocks": 0},
)
"""An execution of experts, and one whose passes run in pairs."""

LOG = b"""\
# nThread 1 nGpus 2 minBytes 8 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20
#  Rank  0 Group  0 Pid  71 on       node device  0 [0x1b] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  71 on       node device  1 [0x43] NVIDIA H100 80GB HBM3
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
        1024           256     float     sum      -1    13.67    0.00    0.00      0    13.03    0.00    0.00      0
       65536         16384     float     sum      -1    15.67    4.18    4.18      0    15.03    4.36    4.36      0
     1048576        262144     float     sum      -1    27.37   38.31   38.31      0    26.93   38.94   38.94    N/A
# Avg bus bandwidth    : 14.2
# Collective test concluded: all_reduce_perf
"""
COLLECTIVES = b"""\
operation,bytes,members,seconds,source
all_reduce,1024,8,2e-5,lab
all_reduce,1048576,8,4e-5,lab
all_reduce,1073741824,8,6e-3,lab
"""
PRODUCTS = b"""\
m,n,k,datatype,seconds
4096,4096,4096,bfloat16,2.1e-4
8192,8192,8192,bfloat16,1.6e-3
8192,2,4096,bfloat16,1e-4
512,4096,4096,bfloat16,4e-5
"""
BENCHMARK = document("examples/measurements", "llama3-8B_h100x2_served") | {
    "completed": 64,
    "failed": 0,
    "request_throughput": 5.4,
    "total_input_tokens": 65_536,
    "total_output_tokens": 16_384,
    "median_itl_ms": 4.5,
    "ttfts": [0.2] * 64,
}
MEASUREMENTS = (
    b"id,model,system,preset,num_gpus,tp,pp,gbs,mbs,zero,precision,iter_time_s,mem_bytes\n"
    b"a,llama-3.1-8b,h100,megatron-lm,64,2,1,128,1,1,bf16,2.0,6e10\n"
    b"b,llama-3.1-8b,a100,,8,2,2,64,1,,,9.5,\n"
)
"""Measured steps as ``lv --rows`` reads them."""

TRAINING = b"""\
model,execution,seconds,memory_bytes
llama3-8B,llama3-8B_h100x64,5.5,61e9
llama3-8B,llama3-8B_h100x64_p4,5.1,74e9
"""


OUTSIDE = "outside.toml"
SECRET = "key_of_another_file"
ENGINES = (
    b"vllm serve m -tp 4 --max-num-seqs 64 --speculative-config '{}'\n",
    b"python -m sglang.launch_server --model m --tp 4 --dp 2 --enable-dp-attention\n",
    b"trtllm-serve m --tp_size 4 --max_batch_size 64\n",
)
SMALL: dict[str, tuple[bytes, ...]] = {
    ".sh": (
        *ENGINES,
        b"torchrun train.py --tensor-model-parallel-size 2 --num-layers 4 --micro-batch-size 1 --bf16 --x $A\n",
        b"NGPU=8 ./run_train.sh --training.seq-len 4096 --training.steps $A\n",
    ),
    ".py": (
        b"from megatron.bridge.x import ConfigContainer\na = {}\n\ncfg = ConfigContainer(model=a)\n"
        b"cfg.model.tensor_model_parallel_size = 4\ncfg.model.foo = a\n",
    ),
    ".yaml": (b"distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n",),
    ".toml": (b"[model]\nname='llama3'\n[training]\nseq_len=4096\n",),
}

PIECES: dict[str, tuple[str, ...]] = {
    ".sh": (
        "source ../../../../../../etc/passwd\n. /etc/passwd\n",
        f"./run_train.sh --job.config_file ../{OUTSIDE}\n",
        f"source ../{OUTSIDE}\nCONFIG_FILE=../{OUTSIDE} ./run_train.sh\n",
        "vllm serve m --speculative-config '" + '{"a":' * 5_000 + "1" + "}" * 5_000 + "'\n",
        "trtllm-serve m --extra_llm_api_options <(echo '" + "[" * 3_000 + "')\n",
        "f() { f; f; }\nf\n",
        "while true; do A+=x; done\n",
        "for i in {1..999999999}; do A+=$i; done\n",
        "if true; then\n" * 3_000,
        "A=9223372036854775807\nA=$((A**A))\nA=$((1<<A))\n",
        "A=$((" + "9" * 5_000 + "*" + "9" * 5_000 + "))\n",
        "$(" * 3_000 + "\n",
        "export B='\x1b[31m\x07'\n",
    ),
    ".yaml": (
        "n: " + "[" * 3_000 + "\n",
        "n: &n [*n, *n]\n",
        "<<: &m {<<: *m, a: 1}\n",
        "a: ${b}\nb: ${a}\n",
        "a: ${oc.env:HOME}\nb: ${oc.decode:${a}}\n",
        "".join(f"{' ' * i}a:\n" for i in range(1_200)),
        '"\\e[31mred\\a": 1\n',
        "".join(f"k{i}: {i}\n" for i in range(60_000)),
    ),
    ".py": (
        "a=0x" + "f" * 50_000 + "\n",
        "a=" + "(" * 3_000 + "\n",
        "a=[" + "1," * 300_000 + "]\n",
        "a='\\x1b[31m'\n",
        "d=[dict() for _ in range(14)]\nfor x in d:\n  for y in d:\n    x[id(y)]=y\na=d\n",
        "a=10**10**10\n",
        "a='x'*10**10\n",
        "a=[0]*10**10\n",
        "a='%1000000000d' % 1\nb=f'{1:>1000000000}'\n",
        "a=list(range(10**10))\n",
        "def f():\n  return f()\na=f()\n",
        "while True:\n  a=1\n",
        "a=" + "+".join("1" * 9_000) + "\n",
        "a=" + "not " * 9_000 + "1\n",
        "a=1" + ".a" * 9_000 + "\n",
    ),
    ".toml": (
        '[z]\n"\\u001b[31m"="\\u001b"\n',
        "[z]\ny=" + "[" * 3_000 + "\n",
        "[[z]]\n" * 30_000,
        "z" + ".a" * 9_000 + "=1\n",
    ),
    ".json": (
        '"y": ' + "9" * 5_000 + ",\n",
        '"y": ' + "[" * 3_000 + ",\n",
        '"y": ' + '{"a":' * 3_000 + "1" + "}" * 3_000 + ",\n",
        '"\\u001b[31m": "\\u001b",\n',
        '"train_micro_batch_size_per_gpu": 1e400,\n',
        "".join(f'"k{i}": {i},\n' for i in range(60_000)),
        '"y": [' + "1," * 300_000 + "1],\n",
    ),
}
"""Pieces that are nested, do not end, reach for other files or are no text for a terminal; those of
``tests/hostile.py`` grow without bound."""


@cache
def hostile_pieces(suffix: str) -> tuple[str, ...]:
    """Return the hostile pieces of a kind of launch file."""
    grown = (one.text() for one in FILES.values() if one.file.endswith(suffix))
    return (*PIECES[suffix], *(text for text in grown if len(text) <= LONGEST_PIECE))


LONGEST_PIECE = 1_000_000
"""Longer files are refused unread."""


def hostile(draw: random.Random, suffix: str, whole: bytes) -> bytes:
    """Return a launch file with a hostile piece between two of its lines, perhaps damaged as well."""
    lines = whole.splitlines(keepends=True)
    starts = [i for i, line in enumerate(lines) if line[:1].isalnum()]  # most are of statements
    at = draw.choice((0, len(lines), draw.choice(starts or [0]), draw.choice(starts or [0])))
    piece = draw.choice(hostile_pieces(suffix)).encode()
    if draw.random() < 0.3:
        piece = change_bytes(draw, piece)
    return b"".join((*lines[:at], piece, *lines[at:]))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of everything inside a document."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def change_document(draw: random.Random, raw: Any, most: int = 3) -> Any:
    """Return a document with up to `most` things changed, added, renamed, nested, repeated or dropped."""
    raw = copy.deepcopy(raw)
    for _ in range(draw.randint(1, most)):
        found = list(places(raw))
        if not found:
            break
        *path, key = draw.choice(found)
        holder = raw
        for step in path:
            holder = holder[step]
        old = holder[key]
        match draw.choice(
            ("set", "set", "set", "scale", "drop", "rename", "nest", "repeat", "swap")
        ):
            case "scale" if (
                isinstance(old, int | float) and not isinstance(old, bool) and abs(old) < 1e9
            ):
                holder[key] = old * draw.choice((0, 0.5, 2, 3, 1e3, 1e-3, 1e100, -1))
            case "drop":
                del holder[key]
            case "rename" if isinstance(holder, dict):
                holder[draw.choice((f"{key}s", *KEYS))] = holder.pop(key)
            case "nest":
                holder[key] = draw.choice(([old], {"value": old}, {key: old}))
            case "repeat" if isinstance(holder, list):
                holder += [copy.deepcopy(old)] * draw.choice((1, 3, 1000))
            case "swap":
                holder[key] = copy.deepcopy(draw.choice(list(SWAPS)))
            case _:
                holder[key] = draw.choice((*NUMBERS, *WORDS, None, True, [], {}, [1, 2], {"a": 1}))
    return raw


SWAPS = (
    *([[1, 2], [3]], [{}], {"size": 8}, [None], ["a"], {"": 0}),
    *([[0, 0.5]], [True], {"list": [1, 2]}, "1:9:x2"),
)


def change_bytes(draw: random.Random, raw: bytes) -> bytes:
    """Return bytes of which up to three pieces are cut, repeated, moved, replaced by a token, or flipped."""
    for _ in range(draw.randint(1, 3)):
        start = draw.randint(0, len(raw))
        end = min(len(raw), start + draw.choice((0, 1, 2, 5, 20, 200)))
        piece = raw[start:end]
        new = draw.choice(
            (
                b"",
                draw.choice(TOKENS),
                draw.choice(TOKENS),
                piece * 2,
                draw.randbytes(draw.randint(0, 6)),
            )
        )
        raw = raw[:start] + new + raw[end:]
    return raw


def written(draw: random.Random, target: Target) -> tuple[str, bytes]:
    """Return the suffix and the content of a damaged file."""
    whole, suffix = draw.choice(target.whole), draw.choice(target.suffixes)
    if target.damage is not None:
        return suffix, target.damage(draw, suffix, whole)
    if isinstance(whole, bytes):
        return suffix, change_bytes(draw, whole)
    raw = change_document(draw, whole)
    text = (
        yaml.safe_dump(raw, allow_unicode=True)
        if suffix == ".yaml" and draw.random() < 0.7
        else json.dumps(raw)
    )
    content = text.encode("utf-8", "surrogatepass")
    if draw.random() < 0.3:
        content = change_bytes(draw, content)
    return suffix, gzip.compress(content, mtime=0) if suffix.endswith(".gz") else content


class TooLong(BaseException):
    """A command took longer than it may; no command catches it."""


def quietly(command: list[str]) -> int:
    """Run a command whose output nobody reads; return its exit code."""
    return printed(command)[0]


def printed(command: list[str]) -> tuple[int, str, str]:
    """Run a command; return its exit code and what it prints on standard output and as messages."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        return main(command), out.getvalue(), err.getvalue()


ERROR = re.compile(r"^calculon( \S+)*: error: ", re.MULTILINE)
CONTROL = re.compile(
    r"[^\n\t\x20-\x7e\xa0-\U0010ffff]|[\ud800-\udfff\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
"""Characters that a terminal would obey, or that no terminal can show."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise :class:`TooLong` in what takes longer than it may."""

    def stop(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def tried(case: Case) -> str:
    """Run a case; return what is wrong with how it ended, empty when nothing is."""
    begin = time.process_time()
    forget_peak()
    before = peak()
    too_long = f"took longer than {case.limits.seconds:g} s"
    try:
        with limited(case.limits.seconds), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code, out, err = printed(list(case.command))
    except TooLong:
        return too_long
    except BaseException:
        return traceback.format_exc()
    if time.process_time() - begin > case.limits.seconds:
        return too_long
    grown = peak() - before
    if grown > case.limits.memory:
        return f"memory of {grown / 2**30:.2f} GiB"
    return wrong_output(code, out, err)


def wrong_output(code: int, out: str, err: str) -> str:
    """Return what is wrong with an exit code and with what a command prints, empty when nothing is."""
    text = f"{out}{err}"
    if code not in EXIT_CODES:
        return f"exit code {code}"
    if code == 2 and not ERROR.search(err):
        return f"exit code 2 without a message: {err[:200]!r}"
    if "Traceback (most recent call last)" in text:
        return f"prints {text[-2000:]}"
    if SECRET in text:
        return "prints a file outside the folder"
    if found := CONTROL.search(text):
        return f"prints {found[0]!r}: {text[max(0, found.start() - 40) : found.end() + 20]!r}"
    return ""


STATUS = Path("/proc/self/status")


def forget_peak() -> None:
    """Begin the peak of resident memory anew: tests before in this process may have needed more than a command may."""
    with contextlib.suppress(OSError):  # other systems, and containers that do not allow it
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak() -> int:
    """Return the largest resident memory in bytes since :func:`forget_peak`; of the whole process on other systems."""
    if not STATUS.exists():
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 1024 * int(STATUS.read_text(encoding="ascii").partition("VmHWM:")[2].split()[0])


def cases(seeds: Iterable[int], folder: Path, kinds: tuple[str, ...] = ()) -> Iterator[Case]:
    """Yield a case for each seed; its file lies in the folder, where it is to be tried, until the next one."""
    every = [target for target in targets(folder) if not kinds or target.kind in kinds]
    (folder / OUTSIDE).write_text(f"[training]\n{SECRET} = 1\n")
    below = folder / "below"
    below.mkdir(exist_ok=True)
    here = Path.cwd()
    os.chdir(folder)
    try:
        for seed in seeds:
            draw = random.Random(seed)
            target = every[seed % len(every)]
            suffix, content = written(draw, target)
            path = below / f"damaged{suffix}"
            path.write_bytes(content)
            command = [part.replace("{}", str(path)) for part in target.command]
            yield Case(
                seed,
                target.kind,
                content,
                (*command, *draw.choice(target.options)),
                target.limits,
            )
    finally:
        os.chdir(here)
