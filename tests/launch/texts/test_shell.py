"""What scripts would run, without running them."""

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon.base.errors import SpecError
from calculon.launch.texts.reading_budget import Budget
from calculon.launch.texts.shell import run
from calculon.launch.texts.shell_arithmetic import comparison_result
from calculon.launch.texts.shell_words import Simple, statements


def _last(text, **given):
    """Return the words of the last command but ``exit``, what is open of them as the script has it in brackets."""
    script = run(text, "run.sh", given)
    *_, words = (one.words for one in script.commands if one.words[0] not in ("exit", "return"))
    return [f"<{open_}>" if (open_ := script.open(word)) else word for word in words]


def test_values_are_put_in():
    rows = [
        ("A=1; run $A ${A} '$A' \"$A x\" \\$A", ["1", "1", "$A", "1 x", "$A"]),
        ("A='1 2'; run $A \"$A\"", ["1", "2", "1 2"]),
        ("run ${A:-3} ${A-4}", ["3", "4"]),
        ("A=; run ${A:-3} x${A-4}x", ["3", "xx"]),
        ("A=2; run ${A:-3} ${A:+5}", ["2", "5"]),
        ("run ${A:=3} $A", ["3", "3"]),
        ("A=AbC; run ${A,,} ${A^^} ${A/b/x}", ["abc", "ABC", "AxC"]),
        ("A=(1 2 '3 4'); run \"${A[@]}\" ${#A[@]} ${A[1]}", ["1", "2", "3 4", "3", "2"]),
        ("A=('--x 1'); run ${A[@]}", ["--x", "1"]),
        ('A=(); run "${A[@]}" ${A[@]} end', ["end"]),
        ("A=(1); A+=(2); B+=x; B+=y; run ${A[@]} $B", ["1", "2", "xy"]),
        ("A=2; run $((A * 3)) $(( (A+1) * $A ))", ["6", "6"]),
        ("export A=7 B=8; run $A$B", ["78"]),
        ("A=' --x 1 '; run $A$A", ["--x", "1", "--x", "1"]),
        ("if [ 8 -gt 4 ]; then A=1; else A=2; fi; run $A", ["1"]),
        ("M=7B; case $M in 8B|7B) A=1;; *) A=2;; esac; run $A", ["1"]),
        ('[ -z "$Q" ] && Q=4; run $Q', ["4"]),
        ('[ -n "$Q" ] || Q=5; run $Q', ["5"]),
        ("A=( --x 1 # one\n  --y ); run ${A[@]}", ["--x", "1", "--y"]),
        ("if [ a = b ]; then A=1; elif [ a = a ]\nthen A=2\nelse A=3; fi; run $A", ["2"]),
        ("if [[ a == b ]] || [[ x == x ]]; then A=1; fi; run $A", ["1"]),
        ("for i in 5; do A=$i; done; run $A", ["5"]),
        ("read -r -d '' C <<EOF\n--x 1\nEOF\nrun $C", ["--x", "1"]),
        ("C='run --x 1'; eval $C", ["--x", "1"]),
        ("A=$'a b\\x41\\n'; run \"$A\" $A", ["a bA\n", "a", "bA"]),
        ("A=(x yz); run ${#A} ${#A[@]} ${#A[1]}", ["1", "2", "2"]),
        ("A=2; [ $A = 1 ] && X=1 || X=2; run $X", ["2"]),
        ("A=1; B=2; [ $A = 1 ] && [ $B = 3 ] && X=1; run x$X", ["x"]),
        ("A=1; B=2; [[ $A == 1 && $B == 2 ]] && X=1; run x$X", ["x1"]),
        ("false && X=1; true || X=2; ! mkdir a && X=3; run x$X", ["x"]),
        ("mkdir a && X=1; run x$X", ["x1"]),
        ("X=1; (X=2; exit 0); run $X", ["1"]),
        ("f() { X=2; return 1; X=3; }; f; run $X", ["2"]),
        ("run first; exit 0; run second", ["first"]),
        ('if [ -z "$Q" ]; then exit 1; fi; run on', ["on"]),
        ("N=16; if (( (N + 1) * 2 > 40 )); then X=1; else X=2; fi; run $X", ["2"]),
        ("N=1; for i in 5; do N=$((N * 2)); done; run $N", ["2"]),
        ("set -- 1 2 3; shift; run $@ $#", ["2", "3", "2"]),
        ("set -- 1 2 3; shift 2; run $@ $#", ["3", "1"]),
    ]
    wrong = [(text, found) for text, words in rows if (found := _last(text)) != ["run", *words]]
    assert wrong == []


def test_arithmetic_has_the_values_of_c():
    rows = [
        *(("2 + 3 * 4", 14), ("(2 + 3) * 4", 20), ("-7 / 2", -3), ("7 % 4", 3), ("-7 % 4", -3)),
        *(("2 > 1 ? 5 : 6", 5), ("2 < 1 ? 5 : 6", 6), ("0?5:6", 6), ("3 == 3", 1), ("3 != 3", 0)),
    ]
    assert [_last(f"run $(({text}))") for text, _ in rows] == [["run", str(n)] for _, n in rows]
    for text in ("1.5", "f(1)", "2 ** 3", "'x'", "1 +", "1 ? 2 :"):
        assert _last(f"run $(({text}))") == ["run", f"<$(({text}))>"]


@given(st.integers(-1000, 1000), st.integers(-50, 50).filter(bool))
def test_quotient_and_remainder_give_the_number_again(a, b):
    assert _last(f"run $((({a}) / ({b}) * ({b}) + ({a}) % ({b})))") == ["run", str(a)]


def test_comparisons_hold_or_are_not_known():
    rows = [
        *(("8B", "=", "8B", True), ("8B", "==", "7?", False), ("70B", "==", "7*", True)),
        *(("a", "!=", "b", True), ("8", "-gt", "4", True), ("", "-eq", "0", True)),
        *(("x", "-eq", "0", None), ("a", "=~", "a", None)),
    ]
    for first, operator, second, holds in rows:
        found = comparison_result(first, operator, second, Budget("run.sh"))
        assert found is holds, (first, operator, second)


def test_what_the_environment_says_is_open():
    rows = [
        ("run $1", "<$1>"),
        ("run $SLURM_NNODES", "<$SLURM_NNODES>"),
        ("run $(nproc)", "<$(nproc)>"),
        ("run `pwd`/x", "<`pwd`/x>"),
        ("A=$((N * 2)); run $A", "<$((N * 2))>"),
        ("if [ $1 = a ]; then A=1; else A=2; fi; run $A", "<1 or 2>"),
        ("case $1 in a) A=1;; esac; run $A", "<1 or nothing>"),
        ("for i in 1 2; do A=$i; done; run $A", "<1 or 2>"),
        ("if [ -f x ]; then A=1; else A=2; fi; run $A", "<1 or 2>"),
        ("[ $1 = 1 ] && A=1 || A=2; run $A", "<1 or 2>"),
        ("grep -q x y && A=1; run $A", "<1 or nothing>"),
        ("A=1; if [ $1 = a ]; then A=2; exit 1; fi; [ $1 = b ] && A=3; run $A", "<3 or 1>"),
        ("for ((i=0; i<4; i++)); do run $i; done", "<((i=0; i<4; i++))>"),
        ("N=1; ((N++)); run $N", "<((N++))>"),
        ("N=1; for i in 1 2; do N=$((N * 2)); done; run $N", "<2, 4, ... in a loop>"),
        ("N=1; while read x; do run $N; N=$((N + 1)); done", "<2, 3, ... in a loop>"),
    ]
    wrong = [(text, found) for text, word in rows if (found := _last(text)) != ["run", word]]
    assert wrong == []


def test_what_is_given_closes_it_and_holds_against_the_script():
    text = "M=${M:-8B}; N=4; case $M in 8B) A=1;; 70B) A=2;; esac; run $A $1 $N"
    assert _last(text, **{"M": "70B", "1": "x", "N": "6"}) == ["run", "2", "x", "6"]


def test_flags_of_open_branches_are_open_flags_after_those_in_common():
    text = "A=(--a 1); if [ $SP = 1 ]; then A+=(--b 2); fi; run ${A[@]}"
    script = run(text, "run.sh", {})
    words = script.commands[-1].words
    assert words[:3] == ("run", "--a", "1")
    opening = script.open(words[3])
    assert words[3].startswith("--b")
    assert opening is not None
    assert (opening.needs, "$SP = 1" in opening.text) == ("SP", True)
    assert len(words) == 4


def test_commands_are_on_the_line_of_their_first_word():
    found = run("a \\\n\\\n b \\\n c # d\n\n\\\ne", "run.sh", {}).commands
    assert [(one.words[0], one.line) for one in found] == [("a", 1), ("e", 7)]


def test_branches_that_agree_leave_nothing_open():
    assert _last("if [ $X = 1 ]; then A=3; else A=3; fi; run $A") == ["run", "3"]


def test_scripts_in_here_documents_of_batch_systems_are_read():
    text = 'A="--x 1"\nsbatch <<EOF\n#SBATCH -N 2\nsrun run "${A}"\nEOF'
    assert _last(text) == ["srun", "run", "--x 1"]


@pytest.mark.parametrize("text", ["run " + "$(" * 3000, "if a; then " * 3000, "( " * 3000])
def test_what_is_nested_too_deeply_is_told(text):
    with pytest.raises(SpecError):
        run(text, "run.sh", {})


@pytest.mark.parametrize(
    "text",
    [
        "A=(1); echo ${A[²]}",
        "echo $((" + "-" * 50_000 + "1))",
        "((" + "a" * 20_000 + "))",
        "[ a = b ] && " * 5000 + "x",
        "false || " * 20_000 + "x",
        "x {" + "a," * 100_000,
        "f() { f $1$1; }; f aaaa",
    ],
    ids=lambda text: text[:12],
)
def test_what_is_long_or_odd_is_read_soon_or_refused(text):
    begin = time.process_time()
    with suppress(SpecError):
        run(text, "run.sh", {})
    assert time.process_time() - begin < 2


@pytest.mark.parametrize("code", ["xf0000", "U000f0000", "ud800", "UFFFFFFFF"])
def test_escapes_write_no_characters_of_the_reader(code):
    _, word = _last(f"run $'\\{code}'")
    assert word.startswith(("\N{REPLACEMENT CHARACTER}", "\xf0"))


def test_nothing_is_executed(tmp_path):
    mark = tmp_path / "mark"
    run(f"touch {mark}; $(touch {mark}); `touch {mark}`; eval 'touch {mark}'", "run.sh", {})
    assert not mark.exists()


# Words


def _words(text):
    return [one.words for one in statements(text, "run.sh") if isinstance(one, Simple)]


def test_words_keep_their_quotes_and_lose_comments_and_continuations():
    text = "train 'a b' \"$X y\" \\\n  --flag # a comment \\\nnext"
    assert _words(text) == [("train", "'a b'", '"$X y"', "--flag"), ("next",)]


def test_redirections_are_no_words():
    rows = ["> log", "2>&1 | tee log", "&> log", ">> log", "<<< text"]
    for end in rows:
        assert _words(f"train --a 1 {end}")[0] == ("train", "--a", "1"), end


def test_here_documents_that_the_file_ends_before_are_empty():
    rows = ["train <<", "train <<EOF", "train <<-EOF; more"]
    for text in rows:
        first, *_ = statements(text, "run.sh")
        assert first == Simple(("train",), 1), text


def test_what_has_no_end_is_told_with_its_line():
    rows = ["a 'b", 'a "b', "A=(1 2", "a ${B", "a $(b", "a `b"]
    for text in rows:
        with pytest.raises(SpecError, match=r"run.sh:2: expected a closing mark for") as caught:
            statements(f"first\n{text}", "run.sh")
        assert caught.value.found == "the end of the file"
