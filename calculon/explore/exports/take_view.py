"""The foot of every view: files of what it shows, and the commands and Python that give its numbers."""

from calculon.base.errors import SpecError
from calculon.explore.answers import Answers
from calculon.explore.exports.exports import LAUNCH_FILES, launch_file, offered
from calculon.explore.exports.same_command import same, script
from calculon.explore.page_state import State
from calculon.explore.part import Part, PartKind, html
from calculon.launch.dialects import DIALECTS


def _files(state: State, answers: Answers) -> Part:
    files = [
        (_address(name, state), one.title, name.rpartition(".")[2].upper())
        for name, one in offered(state, answers).items()
    ]
    commands = same(state, answers)
    return Part(
        title="Export",
        blocks=(html("take.html", files=files, commands=commands, script=script(commands)),),
    )


def _launch_files(state: State, answers: Answers) -> Part | None:
    """Return the launch files that run the plan, and why others cannot."""
    if answers.plan(state).estimate is None:
        return None
    able, unable = [], []
    for (name, one), dialect in zip(LAUNCH_FILES.items(), DIALECTS, strict=True):
        try:
            _, left_out = launch_file(dialect, state, answers)
        except SpecError as error:
            unable.append((one.title, [str(problem) for problem in error.problems]))
        else:
            able.append((_address(name, state), one.title, left_out))
    return Part(title="Launch files", blocks=(html("launch.html", able=able, unable=unable),))


def _address(name: str, state: State) -> str:
    return f"/export/{name}?{state.query}"


TAKE = PartKind(name="take", title="Export", make=_files, later=True)
"""What stands at the foot of every view."""

LAUNCH = PartKind(name="launch", title="Launch files", make=_launch_files, later=True)
"""What the view of a plan has before it."""
