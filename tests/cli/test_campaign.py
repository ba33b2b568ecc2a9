"""``calculon campaign``: pages, files and exit codes."""

import json

import calculon

SMALL = ("gpt2-124M", "gpt2-124M_a100x2_ddp", "a100_80g_sxm")


def test_json_is_all_of_it(output_of, tmp_path):
    found = calculon.campaign(*SMALL, tokens="1T", fleet__price=2.0).to_dict()
    plain = json.loads(json.dumps(found))
    options = ("--tokens", "1T", "--price", "2.0")
    told = json.loads(output_of("campaign", *SMALL, *options, "-f", "json"))
    assert (told["figures"], told["money"]) == (plain["figures"], plain["money"])
    assert output_of("campaign", *SMALL, *options, "-o", "run.json") == "Output: run.json\n"
    assert json.loads((tmp_path / "run.json").read_text()) == told


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
