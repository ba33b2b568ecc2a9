"""``calculon block``: the page, the document, and what is refused."""

import csv
import json

import pytest

import calculon

SEED = ("nanogpt-mlp", "nanogpt-mlp_t4", "a100_80g_sxm")
LLAMA = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")


def _document(run, *arguments):
    code, out, err = run("block", *arguments, "-o", "-")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_the_page_names_operators_passes_collectives_and_sums(run):
    code, out, err = run("block", *SEED)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "MLP of nanogpt-mlp, TP 4 on a100_80g_sxm   edition corrected"
    assert "12 sequences x 64 = 768 tokens" in lines[1]
    for title in ("Time: ", "Arithmetic", "Tier-1 traffic", "Collectives: ", "Sums: "):
        assert any(line.startswith(title) for line in lines)
    assert out.count("    Mlp1 ") == out.count("    GeLU ") == 3
    stats = calculon.estimate(*SEED).stats
    whole = sum(stats[f"block_{name}_time"] for name in ("fw", "agrad", "wgrad")) + sum(
        stats[f"baseblock_{name}_tp_time_exposed"] for name in ("fw", "agrad")
    )
    assert lines[-1].split()[-2] == f"{whole * 1e6:.3f}"


@pytest.mark.parametrize(
    "arguments",
    [
        SEED,
        ("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g"),
        (*LLAMA, "--set", "activation_recompute=attn_only", "--set", "attn_impl=eager"),
        (*LLAMA, "--set", "tensor_par_overlap=none", "--set", "tensor_par_comm_type=p2p_rs_ag"),
        ("mlp-4x1024", "mlp-4x1024_t2", "a100_80g_sxm"),
    ],
    ids=lambda arguments: " ".join(arguments[3:]) or arguments[0],
)
def test_nothing_is_cut_at_any_width(run, monkeypatch, arguments):
    for width, tables in ((80, 3), (160, 1)):
        monkeypatch.setenv("COLUMNS", str(width))
        out = run("block", *arguments).out
        assert max(map(len, out.splitlines())) <= width
        assert "\u2026" not in out
        assert sum("forward  " in line and "agrad  " in line for line in out.splitlines()) == tables


def test_the_document_has_everything_and_a_file_is_the_same(run, tmp_path):
    found = _document(run, *LLAMA)
    members = {"model", "execution", "system", "provenance", "edition", "operators", "stats"}
    assert set(found) == members
    assert run("block", *LLAMA, "-o", "block.json").out == "Output: block.json\n"
    assert json.loads((tmp_path / "block.json").read_text()) == found


def test_operators_are_written_as_a_table(run, tmp_path):
    assert run("block", *LLAMA, "-o", "block.csv").out == "Output: block.csv\n"
    rows = list(csv.DictReader((tmp_path / "block.csv").read_text().splitlines()))
    operators = _document(run, *LLAMA)["operators"]
    assert [row["name"] for row in rows] == [one["name"] for one in operators]
    for row, one in zip(rows, operators, strict=True):
        assert float(row["fw_processing_time"]) == one["time"]["forward"]
        assert float(row["recompute_flops"]) == one["flops"]["recompute"]
        assert float(row["saved"]) == one["saved"]


def test_a_part_is_looked_at_alone(run):
    names = {o["name"].partition("_")[0] for o in _document(run, *LLAMA)["operators"]}
    assert names == {"AttnBlock", "MlpBlock"}
    found = _document(run, *LLAMA, "--part", "mlp")
    assert [o["name"] for o in found["operators"]] == [
        "MlpBlock_F",
        "MlpBlock_Mlp1",
        "MlpBlock_SwiGLU",
        "MlpBlock_Mlp2",
        "MlpBlock_G",
    ]
    assert found["model"]["part"] == "mlp"


def test_set_changes_fields_of_the_execution(run):
    changed = _document(run, *SEED, "--set", "matmul_impl=mul_sum", "--set", "microbatch_size = 6")
    assert changed["execution"]["matmul_impl"] == "mul_sum"
    assert changed["execution"]["microbatch_size"] == 6
    names = [operator["name"] for operator in changed["operators"]]
    assert "MlpBlock_Mlp1_Sum" in names


def test_bad_input_is_one_message(run):
    rows = [
        (
            ("--set", "tp_asnyc=true"),
            "--set: tp_asnyc: expected a field of the model, execution or system",
        ),
        (("--set", "tp_async"), "expected PATH=VALUE"),
        (("--set", "tp_async=maybe"), "tp_async: expected true or false"),
        (("--set", "tensor_par=0"), "tensor_par: expected"),
        (("--set", "tensor_par=2"), "nanogpt-mlp_t4: num_procs: expected tensor_par x"),
        (("--part", "linear"), "--part: feedforward: expected hidden=128"),
        (
            ("--edition", "sc23"),
            "edition: expected corrected, which nanogpt-mlp: mlp_bias=true needs",
        ),
        (("-o", "block.txt"), "block.txt: expected"),
    ]
    for arguments, message in rows:
        code, out, err = run("block", *SEED, *arguments)
        assert (code, out) == (2, ""), arguments
        assert message in err
        assert len(err.splitlines()) == 1


def test_what_cannot_run_says_so(run):
    sizes = ("--set", "tensor_par=16", "--set", "num_procs=16")
    code, _, err = run("block", "megatron-1T", *SEED[1:], *sizes)
    assert code == 1
    assert "not big enough" in err


def test_operators_that_do_nothing_are_not_printed(run):
    specs = ("mixtral-8x7B", "mixtral-8x7B_h100x64", "h100_80g_sxm")
    idle = {"MlpBlock_Rows_F", "MlpBlock_Sort", "MlpBlock_Unsort", "MlpBlock_Rows_G"}
    assert idle < {one["name"] for one in _document(run, *specs)["operators"]}
    printed = {line.strip().split(" ")[0] for line in run("block", *specs).out.splitlines()}
    assert not printed & {"Rows_F", "Sort", "Unsort", "Rows_G"}
    assert {"Counts", "Dispatch", "Combine", "Experts1"} < printed
