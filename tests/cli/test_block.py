"""``calculon block``: the page, the document, and what is refused."""

import json

from tests.helpers import csv_rows

SEED = ("nanogpt-mlp", "nanogpt-mlp_t4", "a100_80g_sxm")
LLAMA = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")


def _document(output_of, *arguments):
    return json.loads(output_of("block", *arguments, "-o", "-"))


def test_files_have_the_document_and_a_row_for_each_operator(run, output_of, tmp_path):
    found = _document(output_of, *LLAMA)
    members = {"model", "execution", "system", "provenance", "edition", "operators", "stats"}
    assert set(found) == members
    for name in ("block.json", "block.csv"):
        assert run("block", *LLAMA, "-o", name).out == f"Output: {name}\n"
    assert json.loads((tmp_path / "block.json").read_text()) == found
    rows = csv_rows((tmp_path / "block.csv").read_text())
    for row, one in zip(rows, found["operators"], strict=True):
        assert row["name"] == one["name"]
        assert float(row["fw_processing_time"]) == one["time"]["forward"]
        assert float(row["recompute_flops"]) == one["flops"]["recompute"]
        assert float(row["saved"]) == one["saved"]


def test_a_part_is_looked_at_alone(output_of):
    found = _document(output_of, *LLAMA, "--part", "mlp")
    names = ["F", "Mlp1", "SwiGLU", "Mlp2", "G"]
    assert [one["name"] for one in found["operators"]] == [f"MlpBlock_{name}" for name in names]
    assert found["model"]["part"] == "mlp"


def test_set_changes_fields_of_the_execution(output_of):
    changed = _document(
        output_of, *SEED, "--set", "matmul_impl=mul_sum", "--set", "microbatch_size = 6"
    )
    assert changed["execution"]["matmul_impl"] == "mul_sum"
    assert changed["execution"]["microbatch_size"] == 6
    names = [operator["name"] for operator in changed["operators"]]
    assert "MlpBlock_Mlp1_Sum" in names


def test_bad_input_is_one_message(refuses):
    rows = [
        ("--set tp_asnyc=true", "--set: tp_asnyc: expected a field of the model, execution or"),
        ("--set tensor_par=0", "tensor_par: expected"),
        ("--set tensor_par=2", "nanogpt-mlp_t4: num_procs: expected tensor_par x"),
        ("--part linear", "--part: feedforward: expected hidden=128"),
        ("--edition sc23", "edition: expected corrected, which nanogpt-mlp: mlp_bias=true needs"),
        ("-o block.txt", "block.txt: expected"),
    ]
    refuses(("block", *SEED), rows)
    sizes = "--set tensor_par=16 --set num_procs=16"
    refuses(("block", "megatron-1T", *SEED[1:]), [(sizes, "too small")], code=1)


def test_operators_that_do_nothing_are_not_printed(run, output_of):
    specs = ("mixtral-8x7B", "mixtral-8x7B_h100x64", "h100_80g_sxm")
    idle = {"MlpBlock_Rows_F", "MlpBlock_Sort", "MlpBlock_Unsort", "MlpBlock_Rows_G"}
    assert idle < {one["name"] for one in _document(output_of, *specs)["operators"]}
    printed = {line.strip().split(" ")[0] for line in run("block", *specs).out.splitlines()}
    assert not printed & {"Rows_F", "Sort", "Unsort", "Rows_G"}
    assert {"Counts", "Dispatch", "Combine", "Experts1"} < printed
