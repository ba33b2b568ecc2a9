"""Campaign fields that the launch file of a trainer states: tokens, checkpoint interval and batch ramp."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from calculon.campaign.read import read_campaign
from calculon.campaign.record import Campaign

if TYPE_CHECKING:
    from calculon.launch.dialect import Launch

_GOALS = ("tokens", "loss", "steps", "phases")
"""Fields that state the length of a run."""

_INSTEAD = {
    "tokens": _GOALS,
    "batch_ramp": ("batch_ramp", "phases"),
    "checkpoints.interval_steps": ("checkpoints.interval", "checkpoints.interval_steps"),
}
"""Campaign fields that take precedence over a field of a launch file; by default the field of the same path."""


def launched_fields(launch: "Launch") -> dict[str, Any]:
    """Return the campaign fields that a launch file states, by path.

    A file that states how often it saves, but not how, saves synchronously: launchers save asynchronously only on
    request (Megatron-LM ``--async-save``, torchtitan ``checkpoint.async_mode``).
    """
    said = launch.campaign
    result: dict[str, Any] = {}
    if tokens := said.get("tokens"):
        result["tokens"] = tokens
    if interval := said.get("save_interval"):
        result["checkpoints.interval_steps"] = interval
        result["checkpoints.mode"] = "async" if said.get("async_save") else "sync"
    if (ramp := _ramp(said, int(launch.execution.get("seq_length") or 0))) is not None:
        result["batch_ramp"] = ramp
    return result


def _ramp(said: Mapping[str, Any], seq_length: int) -> Any:
    """Return the batch ramp in the form of a campaign; None without one."""
    if schedule := said.get("batch_schedule"):
        return [{"from": start, "batch": batch} for start, batch in schedule]
    if (ramp := said.get("batch_ramp")) and seq_length:
        start, step, samples = ramp
        return {"start": start, "step": step, "tokens": samples * seq_length}
    return None


def with_launch(campaign: Campaign, launch: "Launch") -> Campaign:
    """Return a campaign with the fields that the launch file states, except those that the campaign states itself."""
    said = {
        path: value
        for path, value in launched_fields(launch).items()
        if not campaign.stated & {*_INSTEAD.get(path, (path,))}
    }
    return read_campaign(campaign, said)
