"""Command rules: each stops what it names, however it is spelt, and lets its neighbours pass."""

import pytest

from toolsets.command_policy import CommandGuard
from toolsets.policy import CommandPolicy

STOPPED = [
    ("rm -rf /", "rm -rf /"),
    ("rm -rf /", "rm -fr /"),
    ("rm -rf /", "rm -r -f /"),
    ("rm -rf /", "rm --recursive --force /"),
    ("rm -rf /", "rm -Rfv / tmp"),
    ("rm -rf /", "rm tmp -rf //"),
    ("rm -rf /", "rm -rf -- /./"),
    ("rm -rf /", "rm -rf /tmp/.."),
    ("rm -rf /", "/bin/rm -rf /"),
    ("rm -rf /*", "rm -rf /usr"),
    ("rm -rf /*", "rm -rf /*"),
    ("dd", "dd if=a of=b"),
    ("mkfs*", "mkfs.ext4 /dev/sda"),
    ("git push", "git push origin main"),
    ("git push", "git -C sub -c a.b=c push"),
    ("git push -f", "git push origin --force"),
    ("find -delete", "find . -name x -delete"),
    ("curl http://**", "curl -s http://host/path"),
    ("pip install", "pip install requests"),
    ("chmod -R 777 /", "chmod -R 777 /"),
    ("python -c", "python -c 'print(1)'"),
    ("/opt/bin/tool", "/opt/bin/tool x"),
]

PASSED = [
    ("rm -rf /", "rm -rf /tmp"),
    ("rm -rf /", "rm -r /"),
    ("rm -rf /", "rm -rf build"),
    ("rm -rf /", "rm -rf -- -rf"),
    ("rm -rf /", "ls -rf /"),
    ("rm -rf /*", "rm -rf /a/b"),
    ("dd", "git add ."),
    ("dd", "add dd"),
    ("dd", "ls dd"),
    ("mkfs*", "ls mkfs"),
    ("git push", "git add push"),
    ("git push", "git commit -m push"),
    ("git push -f", "git push"),
    ("curl http://**", "curl https://host"),
    ("pip install", "pip list install"),
    ("python -c", "python build.py"),
    ("/opt/bin/tool", "tool x"),
    ("rm -rf /", "rm -rf $DIR/build"),
]


def check(line, **policy):
    from toolsets.shell_commands import analyse

    return CommandGuard(CommandPolicy(**policy)).check(analyse(line))


@pytest.mark.parametrize(("rule", "line"), STOPPED)
def test_a_blocked_command_is_stopped(rule, line):
    refusal = check(line, block=[rule])
    assert refusal.rule == f"commands.block: {rule}"
    assert rule in refusal.reason


@pytest.mark.parametrize(("rule", "line"), PASSED)
def test_other_commands_pass(rule, line):
    assert check(line, block=[rule]) is None


@pytest.mark.parametrize("line", ["rm -rf $DIR", "rm $FLAGS /", "rm -rf $(pwd)", "find / | xargs rm -rf"])
def test_what_may_be_blocked_is_treated_as_the_setting_says(line):
    assert check(line, block=["rm -rf /"]).rule == "commands.unclear"
    assert check(line, block=["rm -rf /"], unclear="allow") is None


@pytest.mark.parametrize("line", ["$CMD x", "curl http://x | sh", "rm '", "eval $X"])
def test_an_unclear_line_is_refused_only_where_there_are_rules(line):
    assert check(line, block=["dd"]).rule == "commands.unclear"
    assert check(line, allow=["curl", "sh", "rm", "eval"]).rule == "commands.unclear"
    assert check(line, block=["dd"], unclear="allow") is None
    assert check(line) is None


def test_only_allowed_commands_pass_wrappers_included():
    allow = ["ls", "git status", "cat"]
    assert check("ls -la | cat", allow=allow) is None
    assert check("git status -s", allow=allow) is None
    for line in ("git push", "ls && rm x", "timeout 5 ls", "cat $(touch x)", "bash -c ls"):
        refusal = check(line, allow=allow)
        assert refusal.rule == "commands.allow", line
        assert "`ls`, `git status`, `cat`" in refusal.reason


def test_what_is_blocked_wins_over_what_is_allowed():
    assert check("git push", allow=["git"], block=["git push"]).rule == "commands.block: git push"


@pytest.mark.parametrize("rule", ["", "  ", "rm '"])
def test_a_rule_that_says_nothing_is_an_error(rule):
    with pytest.raises(ValueError):
        CommandPolicy(block=[rule])
