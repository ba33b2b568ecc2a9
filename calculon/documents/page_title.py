"""Titles of pages, with warnings about unmeasured machines and borrowed figures."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from calculon.declarations.machine_provenance import Provenance
from calculon.declarations.origin import note_on
from calculon.hardware.system import System
from calculon.render.document import Block, Document, dim

UNMEASURED = "unmeasured machine"
"""Note on a processor without a validated run and without a measured kernel."""


def titled(
    title: str,
    terms: str,
    *machines: Mapping[str, Any],
    lead: tuple[Block, ...] = (),
    parts: Iterable[Block] = (),
) -> Document:
    """Return a document whose title contains the warnings about its machines.

    Args:
        title, terms: Subject; edition and preset, for example ``edition corrected, megatron-lm``; may be empty.
        *machines: Systems of the question: provenance (:meth:`Provenance.to_dict`), and the
            note on a name that matches several systems, if any.
        lead, parts: As in :class:`~calculon.render.document.Document`.
    """
    notes = ", ".join(filter(None, (terms, _unmeasured(machines))))
    known: list[Block] = []
    for machine in machines:
        if note := machine.get("note"):
            known.append(dim(note))
        if words := borrowed_words(machine):
            of = f" for {machine['name']}" if len(machines) > 1 else ""
            known.append(dim(f"borrowed{of}: {words}"))
    return Document(title, notes, (*known, *lead), tuple(parts))


def machine_of(system: System) -> Mapping[str, Any]:
    """Return a system as :func:`titled` expects it: its provenance, and the note on an ambiguous name."""
    return {**system.provenance.to_dict(), "name": system.name, "note": note_on(system)}


def machine_notes(machine: Mapping[str, Any]) -> Iterator[str]:
    """Yield warnings about a machine, in phrases: that it was never measured, and the figures it borrows.

    The machine is its provenance as plain data (:meth:`Provenance.to_dict`).
    """
    if machine.get("unmeasured"):
        yield UNMEASURED
    if words := borrowed_words(machine):
        yield f"borrowed: {words}"


def machine_sentences(machine: Mapping[str, Any]) -> Iterator[str]:
    """Yield the notes on a machine as separate lines, for output without a title."""
    for note in machine_notes(machine):
        yield f"{note[0].upper()}{note[1:]}"


def lettered_notes(letters: str, machines: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the notes on the machines of compared results, each after the letters of its results."""
    found: dict[str, list[str]] = {}
    for letter, machine in zip(letters, machines, strict=True):
        if words := "; ".join(machine_notes(machine)):
            found.setdefault(words, []).append(letter)
    for words, several in found.items():
        yield f"{', '.join(several)}: {words}"


def borrowed_words(machine: Mapping[str, Any]) -> str:
    """Return the figures that a machine borrows, and from which machine; empty if none."""
    return Provenance(borrowed=machine.get("borrowed", {})).in_words


def _unmeasured(machines: tuple[Mapping[str, Any], ...]) -> str:
    """Return the note on machines that were never measured, with their names if there are several machines."""
    never = [one for one in machines if one.get("unmeasured")]
    if not never:
        return ""
    if len(machines) == 1:
        return UNMEASURED
    names = ", ".join(str(one["name"]) for one in never)
    return f"{UNMEASURED}{'s' if len(never) > 1 else ''}: {names}"
