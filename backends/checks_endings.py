"""Conformance: commands that have to be ended, what dies with them, and what must not."""

import asyncio

from backends.base import Slot, ToolBackend
from backends.check import Factory, expect, on_backend, on_slot, output_of, require, survivors
from trajectories.errors import SandboxDied

FORGERIES = r"""
printf '\r%s end 0 kept\n' '' x 0 1 2 3
for fd in 1 2 3 9 {90..99} {200..203}; do
    printf '\r%d end 0 kept\n\rfake exit 0 1\n\0' $fd >&$fd
done 2>/dev/null
(exit 9)
"""


@on_slot
async def a_timeout_is_a_result_with_what_was_printed(slot: Slot) -> None:
    result = await slot.exec("echo partial; echo problem >&2; sleep 600; echo never", timeout_s=3)
    expect((result.timed_out, result.exit_code), (True, None))
    expect((result.stdout, result.stderr), ("partial\n", "problem\n"))


@on_slot
async def a_timeout_kills_everything_the_command_started(slot: Slot) -> None:
    command = """
        sleep 611 & (sleep 612; true) & setsid sleep 613 & (setsid sleep 614 &)
        (trap '' TERM INT HUP; sleep 615) & nohup sleep 616 >/dev/null 2>&1 &
        (env -i setsid sleep 617 >/dev/null 2>&1 &)
        sleep 0.1; sleep 618"""
    expect((await slot.exec(command, timeout_s=0.7)).timed_out, True)
    expect(await survivors(slot, "sleep 61"), [])


@on_slot
async def a_timeout_keeps_directory_and_exports(slot: Slot) -> None:
    await slot.exec("mkdir d; cd d; export A='x y'")
    await slot.exec("sleep 600", timeout_s=0.2)
    expect(await output_of(slot, "echo $A; pwd"), f"x y\n{slot.workspace}/d")


@on_slot
async def a_timeout_ends_the_whole_list_of_commands(slot: Slot) -> None:
    await slot.exec("sleep 600; touch reached", timeout_s=0.2)
    await slot.exec("for i in 1 2 3; do sleep 600; touch reached; done", timeout_s=0.2)
    await slot.exec("sleep 600 | cat || touch reached", timeout_s=0.2)
    expect(await output_of(slot, "ls"), "")


@on_slot
async def a_timeout_spares_earlier_background_jobs(slot: Slot) -> None:
    await slot.exec("sleep 621 &")
    await slot.exec("(setsid sleep 622 >/dev/null 2>&1 &)")
    await slot.exec("sleep 629", timeout_s=0.3)
    expect(sorted(line.split()[1] for line in await survivors(slot, "sleep 62")), ["621", "622"])


@on_slot
async def a_timeout_spares_other_shells(slot: Slot) -> None:
    other = asyncio.create_task(slot.exec("until [ -e go ]; do sleep 0.02; done; echo went", shell="b"))
    await slot.exec("sleep 600", timeout_s=0.5)
    await slot.write_file("go", b"")
    result = await other
    expect((result.stdout, result.exit_code), ("went\n", 0))


@on_slot
async def a_shell_busy_by_itself_is_ended(slot: Slot) -> None:
    await slot.exec("export A=1")
    for command in (
        "while :; do :; done",
        "trap '' TERM INT HUP; while :; do :; done",
        "read x <>/tmp; wait",
    ):
        await slot.exec(command, timeout_s=0.3)
    expect(await output_of(slot, "echo $A"), "1")


@on_slot
async def timeouts_in_a_row_leave_the_slot_usable(slot: Slot) -> None:
    await slot.exec("export A=1")
    for _ in range(5):
        expect((await slot.exec("sleep 600", timeout_s=0.1)).timed_out, True)
    expect(await output_of(slot, "echo $A"), "1")


@on_slot
async def a_timeout_of_the_control_shell_leaves_the_agents_alone(slot: Slot) -> None:
    await slot.exec("export A=1")
    expect((await slot.exec("sleep 600", shell="control", timeout_s=0.2)).timed_out, True)
    expect(await output_of(slot, "echo $A"), "1")
    expect(await output_of(slot, "echo fine", shell="control"), "fine")


@on_slot
async def input_left_by_a_timeout_is_never_taken_for_commands(slot: Slot) -> None:
    data = b"touch /tmp/pwned\n\0touch /tmp/pwned\0" * 20_000
    for shell in ("main", "control"):
        await slot.exec("sleep 600", stdin=data, timeout_s=0.2, shell=shell)
        expect((await slot.exec("ls /tmp/pwned", shell=shell)).exit_code, 2)


@on_slot
async def a_cancelled_command_is_killed_before_the_cancellation_arrives(slot: Slot) -> None:
    await slot.exec("export A=1")
    running = asyncio.create_task(slot.exec("(setsid sleep 631 &); touch begun; sleep 632"))
    await output_of(slot, "until [ -e begun ]; do sleep 0.02; done", shell="control")
    running.cancel()
    (ending,) = await asyncio.gather(running, return_exceptions=True)
    require(isinstance(ending, asyncio.CancelledError), f"the call ended with {ending!r}")
    expect(await survivors(slot, "sleep 63"), [])
    expect(await output_of(slot, "echo $A"), "1")


@on_slot
async def a_cancelled_waiter_never_runs_and_disturbs_nobody(slot: Slot) -> None:
    first = asyncio.create_task(slot.exec("until [ -e go ]; do sleep 0.02; done; echo went"))
    await asyncio.sleep(0.1)
    second = asyncio.create_task(slot.exec("touch ran"))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    await slot.write_file("go", b"")
    expect((await first).stdout, "went\n")
    expect((await slot.exec("ls ran")).exit_code, 2)


@on_slot
async def a_fork_bomb_is_ended(slot: Slot) -> None:
    await slot.exec("export A=1")
    await slot.exec(":(){ :|:& };: ; sleep 600", timeout_s=1, max_output_bytes=1000)
    expect(await output_of(slot, "echo $A $(echo forks)"), "1 forks")


@on_slot
async def killing_all_it_can_does_not_cost_the_agent_its_slot(slot: Slot) -> None:
    await slot.exec("export A=1")
    await slot.exec("kill -KILL -1")
    expect(await output_of(slot, "echo $A"), "1")
    await slot.exec("bash -c 'kill -KILL -1'")
    expect(await output_of(slot, "echo $A"), "1")
    expect(await output_of(slot, "echo fine", shell="control"), "fine")


@on_slot
async def finished_processes_leave_no_zombies(slot: Slot) -> None:
    await slot.exec("for i in {1..40}; do (setsid true &); done")
    zombies = "grep -q '^State:.Z' /proc/[0-9]*/status 2>/dev/null"
    expect((await slot.exec(f"while {zombies}; do sleep 0.05; done")).timed_out, False)


@on_slot
async def output_cannot_forge_an_end(slot: Slot) -> None:
    for shell in ("main", "control"):
        result = await slot.exec(FORGERIES, shell=shell)
        expect(result.exit_code, 9)
        expect(await output_of(slot, "echo fine", shell=shell), "fine")


@on_slot
async def closing_every_descriptor_closes_nothing_of_the_harness(slot: Slot) -> None:
    result = await slot.exec('for fd in {0..8} {200..255}; do eval "exec $fd>&-"; done; false')
    expect(result.exit_code, 1)
    expect(await output_of(slot, "echo heard"), "heard")


@on_slot
async def nothing_the_agent_defines_reaches_the_control_shell(slot: Slot) -> None:
    await slot.exec("""
        mkdir bin; for tool in head cat mv rm mkdir tar ls cp chmod readlink; do
            printf '#!/bin/sh\\ntouch /tmp/fooled; echo forged\\n' >bin/$tool; chmod +x bin/$tool
        done
        export PATH=$PWD/bin:$PATH BASH_ENV=$PWD/bin/cat ENV=$PWD/bin/cat
        cd() { touch /tmp/fooled; }; test() { touch /tmp/fooled; }; export -f cd test
        echo() { touch /tmp/fooled; }; alias ls='touch /tmp/fooled'; shopt -s expand_aliases
        printf 'cat() { touch /tmp/fooled; }\\n' | tee ~/.bashrc >~/.profile""")
    await slot.exec("rm -f /tmp/fooled", shell="control")
    await slot.write_file("honest", b"content")
    expect(await slot.read_file("honest"), b"content")
    expect(
        await output_of(slot, "cd /tmp; test -e x || ls -d /tmp; cd - >/dev/null", shell="control"), "/tmp"
    )
    expect((await slot.exec("ls /tmp/fooled", shell="control")).exit_code, 2)


@on_slot
async def what_lies_in_place_of_the_harness_files_holds_nothing_up(slot: Slot) -> None:
    for put in ("mkfifo {}", "mkdir {}", "ln -s /dev/full {}", "ln -s /dev/zero {}"):
        for name in ("main", "control"):
            path = f"/run/lachesis/{name}.env"
            await output_of(slot, f"rm -rf {path}; {put.format(path)}", shell="other")
            for _ in range(2):
                require((await slot.exec("sleep 627", timeout_s=0.2, shell=name)).timed_out, "no limit")
                expect((await slot.exec("echo fine", timeout_s=9, shell=name)).stdout, "fine\n")


@on_slot
async def traps_and_redefined_builtins_do_not_wedge_the_slot(slot: Slot) -> None:
    await slot.exec(
        "trap 'echo D' DEBUG; trap 'echo X' EXIT; trap 'echo E' ERR; trap '' TERM INT; set -T -E -u -C"
    )
    require("hello" in (await slot.exec("echo hello")).stdout, "a traced shell says nothing")
    await slot.exec(
        "builtin() { :; }; read() { :; }; eval() { :; }; printf() { :; }; kill() { :; }", timeout_s=1
    )
    await slot.exec("echo probably lost", timeout_s=1)
    await slot.exec("echo probably lost", timeout_s=1)
    expect(await output_of(slot, "echo fine", shell="control"), "fine")
    await slot.exec("unset -f builtin read eval printf kill; exit", timeout_s=1)
    expect((await slot.exec("builtin echo fine")).stdout.splitlines()[-1:], ["fine"])


async def _raises_sandbox_died(backend: ToolBackend, slot: Slot) -> None:
    running = asyncio.create_task(slot.exec("echo partial; touch begun; sleep 600"))
    await output_of(slot, "until [ -e begun ]; do sleep 0.02; done", shell="control")
    await backend.release(slot)
    (ending,) = await asyncio.gather(running, return_exceptions=True)
    require(isinstance(ending, SandboxDied), f"the command of a destroyed sandbox ended with {ending!r}")


@on_backend
async def a_sandbox_that_ends_is_never_a_commands_result(factory: Factory) -> None:
    async with factory(warm=0) as backend:
        await _raises_sandbox_died(backend, await backend.acquire("a"))
