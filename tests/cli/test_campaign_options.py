"""Options of whole runs: each states a field of a campaign, as a file would."""

from calculon.campaign.read import read_campaign
from calculon.campaign.record import DAY, HOUR
from calculon.cli.campaign_options import (
    OPTIONS,
    add_campaign,
    campaign_of,
    campaign_source,
    stated,
)
from calculon.cli.changes import with_changes
from calculon.cli.options import Parser
from calculon.declarations.parse import parse_value
from tests.helpers import refusal

VALUES = {
    "--tokens": "15T",
    "--loss": "2.1",
    "--steps": "1000",
    "--deadline": "60d",
    "--budget-usd": "5M",
    "--budget-mwh": "900",
    "--mtbf": "40000h",
    "--failures": "new",
    "--overhead": "1.1",
    "--spares": "4",
    "--interval": "30min",
    "--price": "2.0",
    "--price-kind": "spot",
    "--pue": "1.2",
    "--carbon": "400",
}


def parsed(*arguments, without=()):
    parser = Parser()
    add_campaign(parser, without=without)
    return parser.parse_args(arguments)


def test_an_option_states_its_field_as_a_file_would():
    for option in OPTIONS:
        text = VALUES[option.name]
        found = campaign_of(parsed(option.name, text))
        assert stated(parsed(option.name, text)).keys() == {option.path}
        assert found == read_campaign(None, {option.path: parse_value(text)})
        assert found != read_campaign(), option.name


def test_options_count_more_than_the_campaign_and_set_more_than_its_file():
    found = campaign_of(parsed("--campaign", "llama3-405B", "--tokens", "1T", "--deadline", "9"))
    assert found.tokens.tokens == 1e12
    assert found.batch_ramp == read_campaign("llama3-405B").batch_ramp
    assert found.deadline == 9 * DAY  # a number alone is in the unit of the field


def test_set_changes_any_field():
    arguments = parsed("--mtbf", "1000")
    texts = ["campaign.reliability.restart=10min", "checkpoints.levels=2"]
    changed = with_changes(texts, system="h100_80g_sxm", campaign=campaign_source(arguments))
    found = campaign_of(arguments, changed["campaign"])
    assert changed["system"] == "h100_80g_sxm"
    assert found.reliability.restart == 600
    assert found.checkpoints.levels == 2
    assert found.reliability.mtbf_processor == 1000 * HOUR


def test_a_command_may_have_options_of_its_own():
    arguments = parsed(without=("--tokens",))
    assert not hasattr(arguments, "tokens")
    assert campaign_of(arguments) == read_campaign()


def test_a_wrong_value_names_its_option():
    rows = [
        ("--budget-usd", "5 EUR", "--budget-usd: expected US dollars such as 5M"),
        ("--pue", "0.9", "--pue: expected a number of at least 1"),
        ("--price-kind", "lease", "--price-kind: expected one of on_demand, reserved, spot, own"),
        ("--price", "[", "--price: expected a value as in a YAML file"),
    ]
    for option, text, expected in rows:
        assert expected in refusal(campaign_of, parsed(option, text))
