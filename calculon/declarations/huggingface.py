"""Convert a Hugging Face Transformers ``config.json`` to a model, as declared for its family, without guessing."""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NoReturn

from calculon.base.errors import Problem, SpecError, nearest, printable
from calculon.declarations.decode import SpecWarning, decode
from calculon.declarations.families import FAMILIES, INEXPRESSIBLE, OTHERS
from calculon.declarations.families.configuration import Configuration, Key
from calculon.declarations.families.family import Family
from calculon.declarations.families.rules import full_every
from calculon.declarations.fields import shown
from calculon.declarations.model import Model
from calculon.declarations.quantized_weights import KEY, Quantized, quantized_weights

USUAL_LENGTH = 8192
"""Sequence length in tokens of the main phase of pre-training of most current models; longer contexts follow later."""

_OTHER_HEADS = ("Classification", "QuestionAnswering", "RewardModel")
"""Parts of architecture names with a head other than a language-model head."""

_TEXTS = ("text_config", "llm_config", "language_config", "thinker_config")
"""Keys of the text model of a multimodal configuration."""

_TOWERS = ("vision_config", "audio_config")
"""Keys of other parts of a multimodal configuration, which are left out."""

_INHERITED = ("tie_word_embeddings",)


def from_huggingface(
    raw: object, file: str, *, name: str = "model", seq_size: int | None = None
) -> Model:
    """Convert a configuration of Hugging Face Transformers to a model.

    Args:
        raw: The parsed document.
        file: Source of the document, for messages.
        name: Name of the model.
        seq_size: Sequence length; by default the longest that the configuration states.

    Raises:
        SpecError: For an unknown family, a feature that a model cannot express, or a missing or wrong value, with the
            name of the key.
    """
    config, family = _open(raw, file)
    fields = _fields(config, family, {} if seq_size is None else {"seq_size": seq_size})
    _check(config, fields)
    if family.blocks is None:
        fields |= _windows(config, family, fields)
    else:
        fields |= family.blocks(config, fields)
        fields = {name: value for name, value in fields.items() if value is not None}
    if fields.get("kv_heads") == fields["attn_heads"]:
        del fields["kv_heads"]
    return decode(Model, fields, file, name=name)


def document_of(raw: Mapping[Any, Any], file: str) -> dict[str, Any]:
    """Return a configuration as a model document with the longest stated sequence length, and warn about the latter.

    Raises:
        SpecError: As :func:`from_huggingface`.
    """
    model = from_huggingface(dict(raw), file)
    if model.seq_size > USUAL_LENGTH:
        note = (
            f"{file}: sequences of {model.seq_size:,} tokens, its longest context; for the usual "
        )
        note += f"length of pre-training: calculon import-model --seq-size {USUAL_LENGTH}"
        warnings.warn(printable(note), SpecWarning, stacklevel=2)
    return model.to_dict() | {"about": about_of(raw)}


def source_of(raw: object) -> str:
    """Return a short description of a configuration, for ``about`` of the model."""
    config = Configuration(raw if isinstance(raw, dict) else {}, "")
    of = config.get("_name_or_path")
    known = f" of {of}" if isinstance(of, str) and of else ""
    towers = any(config.get(tower) for tower in _TOWERS)
    part = ", the text model only" if towers or _text_key(config) else ""
    return f"Hugging Face config.json{known}, model_type {config.get('model_type')}{part}"


WITHOUT_INDEXER = (
    "without the indexer of its sparse attention, so every token attends to all earlier tokens"
)
"""Note on a model whose queries attend only to keys that an indexer selects."""


def about_of(raw: object) -> dict[str, Any]:
    """Return ``about`` of the model: the source, and deployment fields with the types of its released weights."""
    types = released_types(raw)
    found: dict[str, Any] = {"source": source_of(raw)}
    notes = []
    if isinstance(raw, Mapping) and (key := _text_key(Configuration(raw, ""))):
        notes.append(f"the text model only, as described by {key}")
    if any(part.get("index_topk") for part in _parts_of(raw)):
        notes.append(WITHOUT_INDEXER)
    if notes:
        found["note"] = "; ".join(notes)
    return found | ({"deployment": dict(types.fields)} if types and types.fields else {})


def released_types(raw: object) -> Quantized | None:
    """Return the low-precision weight types of a configuration, which belong to a deployment; None without any."""
    return next((one for part in _parts_of(raw) if (one := quantized_weights(part.get(KEY)))), None)


def _parts_of(raw: object) -> list[Mapping[str, Any]]:
    """Return a configuration, and its text model if it is multimodal."""
    if not isinstance(raw, Mapping):
        return []
    inside = raw.get(_text_key(Configuration(raw, "")))
    return [raw, inside] if isinstance(inside, Mapping) else [raw]


def _text_key(config: Configuration) -> str:
    """Return the key of the text model of a multimodal configuration; empty if there is none."""
    return next((key for key in _TEXTS if isinstance(config.get(key), Mapping)), "")


def _open(raw: object, file: str) -> tuple[Configuration, Family]:
    """Return the part of a document that describes the text model, and its family."""
    if not isinstance(raw, dict):
        raise SpecError(file, Problem("", "an object with named fields", shown(raw)))
    config = Configuration(raw, file)
    kind = config.get("model_type")
    if kind is None:
        hint = "it is a model already" if "num_blocks" in raw else "is this a config.json?"
        config.refuse("model_type", "the name of a family", "nothing (the key is missing)", hint)
    while (key := _text_key(config)) and kind not in OTHERS:
        if problems := [*_features(config, Family(fields={}))]:
            raise SpecError(file, problems)
        inside = config.inside(key)
        # Embeddings of the text model are tied by the outer configuration if the inner one does not state it.
        inherited = {name: config.raw[name] for name in _INHERITED if name in config.raw}
        config = Configuration({**inherited, **inside.raw}, file, inside.path)
        kind = config.get("model_type") or kind
    family = FAMILIES.get(kind.removesuffix("_text")) if isinstance(kind, str) else None
    if family is None:
        _refuse_family(config, kind)
    return config, family


def _refuse_family(config: Configuration, kind: object) -> NoReturn:
    """Raise SpecError for a family that is unknown, or has a feature that no model can express."""
    name = str(kind).removesuffix("_text")
    wanted = f"one of {len(FAMILIES)} families (models/README.md)"
    missing = f"not supported: {OTHERS[name]}" if name in OTHERS else ""
    config.refuse("model_type", wanted, shown(kind), missing or nearest(name, [*FAMILIES]))


def _fields(config: Configuration, family: Family, stated: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the model; fields in `stated` are not read from the configuration."""
    problems = [*_features(config, family), *_other_values(config, family)]
    sources = {**family.fields, **stated}
    fields: dict[str, Any] = {}
    for field, source in sources.items():
        if isinstance(source, Key):
            try:
                fields[field] = config.read(source)
            except SpecError as error:
                hint = "state the sequence length: --seq-size N" if field == "seq_size" else ""
                problems += [replace(p, hint=p.hint or hint) for p in error.problems]
        elif not callable(source):
            fields[field] = source
    if problems:
        raise SpecError(config.file, list({p.field: p for p in reversed(problems)}.values())[::-1])
    # Rules read other fields, so they run after all fields with a key of their own, in the order of the table.
    for name, source in sources.items():
        if callable(source):
            fields[name] = source(config, fields)
    for key, field in family.equal.items():
        if config.get(key) not in (None, fields[field]):
            config.refuse(key, f"{fields[field]}, as {field}", shown(config.get(key)))
    return fields


def _features(config: Configuration, family: Family) -> Iterator[Problem]:
    """Yield features of a configuration that no model can express, or that its family is not known to have."""
    for key, (feature, field) in INEXPRESSIBLE.items():
        if key == KEY and quantized_weights(config.get(key)) is not None:
            continue  # the type of served weights: reported as fields of a deployment
        if config.get(key) and field not in {*family.fields, *family.reads}:
            wanted = f"a model without {feature}"
            yield Problem(config.path + key, wanted, shown(config.get(key)))
    architectures = str(config.get("architectures"))
    if any(head in architectures for head in _OTHER_HEADS):
        yield Problem(config.path + "architectures", "a language model", architectures)


def _other_values(config: Configuration, family: Family) -> Iterator[Problem]:
    """Yield keys with a value that a model cannot express."""
    for key, values in family.only.items():
        if config.get(key) not in (None, *values):
            wanted = " or ".join(map(shown, values))
            yield Problem(config.path + key, wanted, shown(config.get(key)), "no other is known")


def _check(config: Configuration, fields: dict[str, Any]) -> None:
    """Check constraints between fields."""
    heads, groups = fields["attn_heads"], fields.get("kv_heads")
    if groups and heads % groups:
        found = f"{groups} for {heads} heads"
        config.refuse("num_key_value_heads", "a divisor of the heads", found)
    positions, length = fields.get("positions", 0), fields["seq_size"]
    if positions and length > positions:
        wanted = f"at most {positions} tokens, which have a learned position"
        config.refuse("seq_size", wanted, str(length))


def _windows(config: Configuration, family: Family, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of sliding-window attention; none if every block has full attention."""
    source = family.window
    window = 0
    if source is not None:
        window = config.read(source) if isinstance(source, Key) else source(config, fields)
    narrow = "chunked_attention" if family.chunked else "sliding_attention"
    other = (narrow,) if window else ()
    every = full_every(config, "layer_types", "full_attention", other, fields["num_blocks"])
    if every is None:
        every = family.full_every(config, fields) if window else 1
    if every == 1:
        return {}
    # A period longer than the model leaves no block with full attention.
    every = every if every <= fields["num_blocks"] else 0
    found = {"sliding_window": window, "full_attention_every": every}
    return found | {"chunked_window": True} if family.chunked else found
