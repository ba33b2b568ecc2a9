"""``calculon campaign``: pages, files and exit codes."""

import json

import calculon

SMALL = ("gpt2-124M", "gpt2-124M_a100x2_ddp", "a100_80g_sxm")


def test_options_count_more_than_the_file(run, tmp_path):
    (tmp_path / "run.yaml").write_text("tokens: 2T\nreliability: {restart: 10min}\n")
    options = ("--campaign", "run.yaml", "--tokens", "1T", "--set", "campaign.fleet.tdp=500")
    told = json.loads(run("campaign", *SMALL, *options, "-f", "json").out)
    expected = calculon.campaign(
        *SMALL, {"tokens": "1T", "reliability": {"restart": "10min"}, "fleet": {"tdp": 500}}
    )
    assert told["figures"] == json.loads(json.dumps(expected.figures))


def test_a_number_of_processors_is_planned(run):
    out = run("campaign", "gpt2-124M", "2", "h100_80g_sxm", "--tokens", "1T", "-f", "json").out
    planned = calculon.campaign("gpt2-124M", 2, "h100_80g_sxm", tokens="1T")
    assert json.loads(out)["figures"] == json.loads(json.dumps(planned.figures))


def test_bad_input_is_one_message_with_exit_code_2(refuses):
    rows = [
        ("", "campaign: tokens: expected the length of the run"),
        ("--tokens many", "--tokens: "),
        ("--tokens 1T --campaign nothere", "nothere: expected a campaign file"),
        ("--tokens 1T --budget-mwh -1", "budget"),
        ("--tokens 1T --set campaign.reliability.restrt=5", "did you mean 'restart'"),
        ("--tokens 1T --carbon atlantis", "--carbon: "),
        ("--tokens 1T -o run.pdf", "run.pdf"),
    ]
    refuses(("campaign", *SMALL), rows)


# -- the largest model for a fleet -----------------------------------------------------------------------------------

ANY = ("campaign", "any", "64", "h100", "--deadline", "30d")


def test_the_largest_model_takes_no_other_length_of_a_run(refuses):
    rows = [
        ("64 h100", "deadline: expected the available days"),
        ("llama3-8B_h100x64 h100 --deadline 30d", "a number of processors, since the model is any"),
        ("64 h100 --deadline 0", "error: --deadline: expected a time above 0"),
        (
            "64 h100 --deadline 9d --tokens 1T",
            "error: --tokens: expected a run of one particular model",
        ),
        ("64 h100 --deadline 9d --budget-usd 1M", "error: --budget-usd: expected a run of one"),
        ("64 h100 --deadline 9d --set campaign.steps=9", "--set: steps: expected a run of one"),
    ]
    refuses(("campaign", "any"), rows)
    words = "calculon: infeasible: in 1e-06 days 64 x h100_80g_sxm train"
    refuses(ANY[:4], [("--deadline 1e-6", words)], code=1)
