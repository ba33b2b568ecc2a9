"""``--deploy``: a folder that appears at once, and what it replaces."""

import json

import pytest

from calculon.cli.deploy_folder import write_folder
from calculon.documents.served_documents import is_served

ASKED = ("llama3-8B", "1", "h100", "--prompt", "1000", "--output", "200", "--users", "8")


def test_a_folder_has_everything_and_says_so(run, tmp_path):
    folder = tmp_path / "a b"
    code, out, err = run("serve", *ASKED, "--deploy", str(folder))
    assert code == 0
    assert out.endswith(f"Output: {folder} (README.md explains the files)\n")
    assert "assumed: --checkpoint meta-llama/Meta-Llama-3-8B" in err
    names = "README.md bench.sh compose.yaml dynamo.yaml kubernetes.yaml llm-d.yaml prediction.json serve.sh"
    assert sorted(one.name for one in folder.iterdir()) == sorted(names.split())
    text = (folder / "README.md").read_text()
    assert all(name in text for name in names.split() if name != "README.md")
    prediction = json.loads((folder / "prediction.json").read_text())
    assert is_served(prediction)
    assert prediction["deployment"]["engine"] == "vllm"
    assert (folder / "serve.sh").stat().st_mode & 0o111
    code, out, _ = run("compare", str(folder / "prediction.json"), "llama3-8B,1,h100", *ASKED[3:])
    assert code == 0


def test_a_repository_is_its_own_checkpoint_and_an_alias_has_another(run, tmp_path):
    repository = "meta-llama/Llama-3.1-8B-Instruct"
    code, _, err = run("serve", repository, *ASKED[1:], "--deploy", str(tmp_path / "a"))
    assert (code, "--checkpoint" in err) == (0, False)
    assert repository in (tmp_path / "a" / "bench.sh").read_text()
    code, _, err = run("serve", "llama-3.1-8b", *ASKED[1:], "--deploy", str(tmp_path / "b"))
    assert code == 0
    assert "Meta-Llama-3-8B, of llama3-8B; state that of llama-3.1-8b" in err


def test_a_search_deploys_its_best(run, tmp_path):
    folder = tmp_path / "best"
    options = ("--fix", "engine=sglang", "--checkpoint", "x/y", "--deploy", str(folder))
    assert run("sop", *ASKED, *options)[0] == 0
    assert "sglang.launch_server" in (folder / "serve.sh").read_text()
    assert "bench.jsonl" in (folder / "README.md").read_text()


def test_files_of_others_stay(run, tmp_path, refuses):
    folder = tmp_path / "x"
    options = ("--checkpoint", "x/y", "--deploy", str(folder))
    assert run("serve", *ASKED, *options)[0] == 0
    (folder / "bench.json").write_text("mine")
    refuses(("serve", *ASKED), [(options, "expected an empty or a new folder, found files")])
    apart = ("--set", "prefill.num_procs=1", "--force")
    asked = ("llama3-8B", "2", *ASKED[2:])
    assert run("serve", *asked, *options, *apart)[0] == 0
    names = {one.name for one in folder.iterdir()}
    assert {"bench.json", "prefill.sh", "decode.sh"} <= names
    assert "serve.sh" not in names
    assert (folder / "bench.json").read_text() == "mine"


def test_what_cannot_be_written(refuses, tmp_path):
    (tmp_path / "file").write_text("")
    rows = [
        (("--deploy", str(tmp_path / "file")), "expected a folder, found a file"),
        (("--deploy", str(tmp_path / "no" / "x")), "expected a folder that exists"),
        (("--force",), "--force: expected --deploy DIR together with it"),
        (("--checkpoint", "x/y"), "--checkpoint: expected --deploy DIR together with it"),
        (
            ("--deploy", str(tmp_path / "new"), "--checkpoint=-x"),
            "--checkpoint: expected the name",
        ),
    ]
    refuses(("serve", *ASKED), rows)
    assert not (tmp_path / "new").exists()
    nameless = ("gpt3-1.3B", *ASKED[1:], "--deploy", str(tmp_path / "new"))
    refuses(("serve",), [(nameless, "which the model file does not state, found none")])


def test_output_for_programs_stays_clean(run, tmp_path):
    options = ("--checkpoint", "x/y", "--deploy", str(tmp_path / "x"), "-o", "-")
    code, out, err = run("serve", *ASKED, *options)
    assert (code, err) == (0, "")
    assert json.loads(out) == json.loads((tmp_path / "x" / "prediction.json").read_text())


def test_the_folder_of_a_shell_stays_the_same(tmp_path):
    number = tmp_path.stat().st_ino
    write_folder(str(tmp_path), {"a": "text"})
    assert tmp_path.stat().st_ino == number
    assert [one.name for one in tmp_path.iterdir()] == ["a"]


def test_nothing_is_left_of_a_folder_that_fails(tmp_path):
    with pytest.raises(TypeError):
        write_folder(str(tmp_path / "x"), {"a": "text", "b": 1})
    assert list(tmp_path.iterdir()) == []
