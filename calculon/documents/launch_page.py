"""Page of a launch file: its content in words, and the effect of each setting."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from calculon import inputs
from calculon.architecture.parameters import parameter_count
from calculon.base.errors import SpecError, printable
from calculon.base.units import scaled
from calculon.declarations.plan_words import plan_words
from calculon.launch.dialect import Launch, Setting
from calculon.launch.engines.engine_files import CHECKPOINT
from calculon.render.document import Block, Document, Grid, Names, Section, dim, labeled
from calculon.render.texts import counted
from calculon.serving.records.deployment import MEMORY_SHARES, OF_FREE

_LONGEST = 200  # characters per text: longer ones are data, not settings
_MOST = 1_000  # settings per section


def launch_page(launch: Launch, file: str = "") -> Document:
    """Return the page of a launch file; raises errors like :func:`_summary`."""
    fields = launch.deployment or launch.execution
    processors = fields.get("num_procs")
    told = f", {counted(processors, 'processor')}" if isinstance(processors, int) else ""
    title = f"{launch.dialect.title}{told}"
    summary = _served(launch) if launch.deployment else _summary(launch, file or title)
    lead = labeled({label: _cut(text) for label, text in summary.items()})
    notes = (_cut(f"Note: {note}") for note in launch.notes)
    lost = [(_words(setting), effect) for setting, effect in launch.not_modelled]
    unknown, unresolved = (
        [(_words(setting), setting.place) for setting in settings]
        for settings in (launch.unknown, launch.unresolved)
    )
    parts = (
        *_listed("Not modeled, though it changes the result", lost),
        *_listed("Unknown, and may change the result", unknown),
        *_listed("Unresolved: the value is not in the file", unresolved),
        *_joined("Read", [_words(setting) for setting in launch.used]),
        *_joined("Ignored, no effect on time or memory", [one.name for one in launch.ignored]),
    )
    return Document(_cut(f"{file}: {title}" if file else title), "", (lead, *notes), parts)


def _cut(text: str) -> str:
    """Return an untrusted text of a file, shortened, with terminal control characters escaped."""
    return printable(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")


def _words(setting: Setting) -> str:
    value = setting.value
    if value is True:
        return setting.name
    text = " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return f"{setting.name} {text}"


def _listed(title: str, rows: Sequence[tuple[str, str]]) -> Iterator[Section]:
    """Yield settings, one per line, each with a word."""
    if rows:
        cells = tuple((_cut(setting), dim(_cut(word))) for setting, word in rows[:_MOST])
        yield _section(title, Grid(("text", "text"), cells), len(rows), opened=True)


def _joined(title: str, names: Sequence[str]) -> Iterator[Section]:
    """Yield settings in running lines."""
    if names:
        yield _section(title, Names(tuple(map(_cut, names[:_MOST]))), len(names))


def _section(title: str, shown: Block, count: int, *, opened: bool = False) -> Section:
    """Return settings below a title, and the number of hidden ones."""
    # A hostile or generated file must not flood the page.
    settings = counted(count - _MOST, "setting")
    more = [dim(f"and {settings} more (--format json)")] * (count > _MOST)
    return Section(title, (shown, *more), counted(count, "setting"), opened)


def _summary(launch: Launch, file: str) -> dict[str, str]:
    """Return the content of a file in words, by label.

    Raises:
        SpecError: For an invalid execution or model.
    """
    asked = inputs.resolve_execution(launch.execution)
    whole = asked.execution
    fields = whole.to_dict()
    result = {"version": f"written for {launch.dialect.version}; preset {asked.preset.name}"}
    result["plan"] = plan_words(fields, asked.preset.usual(fields))
    length = f" of {whole.seq_length:,} tokens" if whole.seq_length else ""
    result["batch"] = f"{whole.batch_size:,} sequences{length}"
    if launch.model:
        result["model"] = _model_words(launch.model, file)
    if words := _campaign_words(launch.campaign):
        result["run"] = words
    return result


def _served(launch: Launch) -> dict[str, str]:
    """Return the content of an engine's command in words, by label; unresolved fields are left out."""
    fields = launch.deployment
    split = {"TP": "tensor_par", "PP": "pipeline_par", "EP": "expert_par"}
    ranks = " ".join(f"{s} {fields[n]}" for s, n in split.items() if fields[n] > 1 or s == "TP")
    copies = fields["num_procs"] // (fields["tensor_par"] * fields["pipeline_par"])
    experts = fields["experts_dtype"]
    types = [f"weights {fields['weights_dtype']}"]
    types += [] if experts == "same" else [f"experts {experts}"]
    most, budget = fields.get("max_batch"), fields["token_budget"]
    batch = [f"{most:,} sequences at most" if most else "as many sequences as the engine allows"]
    batch.append(f"passes of {budget:,} tokens" if budget else "prompts in separate passes")
    if fields.get("draft", "none") != "none":
        batch.append(f"drafts by {fields['draft']}")
    result = {"version": f"written for {launch.dialect.version}"}
    if (name := launch.stated.get(CHECKPOINT)) is not None:
        result["checkpoint"] = str(name.value)
    result["deployment"] = f"{counted(copies, 'replica')} of {ranks}"
    result["types"] = ", ".join((*types, f"cache {fields['kv_dtype']}"))
    result["batch"] = ", ".join(batch)
    if (share := fields.get("memory_fraction")) is not None:
        result["cache"] = f"{share:.3g} of {MEMORY_SHARES[fields.get('memory_share', OF_FREE)]}"
    return result


def _model_words(document: Mapping[str, Any], file: str) -> str:
    """Return a model in words: its catalog name, or its shape and parameters."""
    # A model of the catalog needs no description.
    if document.keys() == {"name"}:
        return f"{document['name']} from the catalog"
    try:
        model = inputs.model(document)
    except SpecError as error:
        raise SpecError(file, error.problems) from None
    shape = f"{model.num_blocks:,} blocks, {model.hidden:,} wide"
    words = f"{scaled(parameter_count(model))} parameters"
    return f"{shape}, {words}" if model.vocab else f"{shape}, {words} without embedding and head"


def _campaign_words(campaign: Mapping[str, Any]) -> str:
    words = []
    if tokens := campaign.get("tokens"):
        words.append(f"{scaled(tokens)} tokens")
    if interval := campaign.get("save_interval"):
        words.append(f"a checkpoint every {interval:,} steps")
    if ramp := campaign.get("batch_ramp"):
        words.append(f"a ramp of the batch ({' '.join(map(str, ramp))})")
    if schedule := campaign.get("batch_schedule"):
        words.append(f"batches from {schedule[0][1]:,} to {schedule[-1][1]:,} sequences")
    return ", ".join(words)
