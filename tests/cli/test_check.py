"""``calculon check``: its page, its files, and the use of a measurement in ``serve``."""

import json
import shlex

ASKED = ("llama3-8B", "tp=1", "h100", "--prompt", "1000", "--output", "200", "--users", "16")
RESULT = {"mean_ttft_ms": 90.0, "mean_tpot_ms": 9.0, "output_throughput": 1700.0, "completed": 200}


def test_a_deployment_is_checked(run, tmp_path):
    folder = tmp_path / "a b"
    assert run("serve", *ASKED, "--deploy", str(folder))[0] == 0
    bench = folder / "bench.json"
    bench.write_text(json.dumps(RESULT))
    code, out, err = run("check", str(bench))
    assert (code, err) == (0, "")
    assert "measured and predicted" in out
    assert "time per token" in out
    code, out, _ = run("check", str(bench), "--format", "json")
    assert {one["figure"] for one in json.loads(out)["figures"]} == {"ttft", "tpot", "output_rate"}
    assert run("check", str(bench), "-o", str(tmp_path / "x.html"))[0] == 0
    # The command on the page works, and says that the measurement is used.
    page = run("check", str(bench), "--format", "markdown").out
    line = next(one for one in page.splitlines() if "calculon serve" in one)
    code, out, _ = run(*shlex.split(line[line.index("serve") :]))
    assert code == 0
    assert "3 figures of your own" in " ".join(out.split())


def test_what_cannot_be_checked(refuses, tmp_path):
    lonely = tmp_path / "bench.json"
    lonely.write_text(json.dumps(RESULT))
    rows = [
        ((str(lonely),), "prediction.json: expected a readable file"),
        ((str(tmp_path / "none.json"),), "none.json"),
    ]
    refuses(("check",), rows)
