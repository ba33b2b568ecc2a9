"""The last part of every view: export files, and the equivalent commands and Python code."""

from calculon.base.errors import SpecError
from calculon.explore.answers import Answers
from calculon.explore.exports.equivalent_commands import equivalents, script
from calculon.explore.exports.exports import LAUNCH_FILES, launch_file, offered
from calculon.explore.page_state import State
from calculon.explore.view_part import ViewPart, ViewPartKind, html
from calculon.launch.dialects import DIALECTS
from calculon.render.document import Block, Grid, Section, Styled, dim


def _files(state: State, answers: Answers) -> ViewPart:
    files = tuple(
        (Styled(one.title, link=_address(name, state)), dim(name.rpartition(".")[2].upper()))
        for name, one in offered(state, answers).items()
    )
    commands = equivalents(state, answers)
    texts = {**{one.title: one.text for one in commands}, "In Python": script(commands)}
    code = (Section(name, (html("code.html", text=texts[name]),), opened=True) for name in texts)
    same_words = Section("Equivalent commands and Python code", tuple(code))
    return ViewPart(title="Export", blocks=(Grid(("left", "left"), files), same_words))


def _launch_files(state: State, answers: Answers) -> ViewPart | None:
    """Return the launch files that run the plan, and why other launchers cannot."""
    if answers.plan(state).estimate is None:
        return None
    able, unable = [], []
    for (name, one), dialect in zip(LAUNCH_FILES.items(), DIALECTS, strict=True):
        try:
            _, left_out = launch_file(dialect, state, answers)
        except SpecError as error:
            unable += [(one.title, str(problem)) for problem in error.problems]
            continue
        note = f"the settings of the model are left out: {left_out}" if left_out else ""
        able.append((Styled(one.title, link=_address(name, state)), dim(note)))
    blocks: list[Block] = ["No known launcher can run this plan."]
    if able:
        blocks = [dim("Start this plan with:"), Grid(("left", "text"), tuple(able))]
    if unable:
        why = Grid(("left", "text"), tuple(unable))
        blocks.append(Section("Launchers that cannot run this plan, with reasons", (why,)))
    return ViewPart(title="Launch files", blocks=tuple(blocks))


def _address(name: str, state: State) -> str:
    return f"/export/{name}?{state.query}"


EXPORT_PART = ViewPartKind(name="take", title="Export", make=_files, later=True)
"""Last part of every view."""

LAUNCH_PART = ViewPartKind(name="launch", title="Launch files", make=_launch_files, later=True)
"""Launch files, only in the view of a plan."""
