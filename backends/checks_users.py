"""Conformance: commands of other users than the agent, in sandboxes that can have them."""

import asyncio

from backends.base import Slot
from backends.check import expect, on_slot, output_of, require, survivors

OTHER = "65534"


@on_slot
async def a_command_can_run_as_another_user(slot: Slot) -> None:
    result = await slot.exec("id -u; cat; echo problem >&2; exit 3", user=OTHER, stdin=b"input\n")
    expect((result.stdout, result.stderr, result.exit_code), (f"{OTHER}\ninput\n", "problem\n", 3))


@on_slot
async def another_user_gains_no_privileges(slot: Slot) -> None:
    for user in (OTHER, "0"):
        status = (await slot.exec("cat /proc/self/status", user=user)).stdout
        require("CapBnd:\t0000000000000000" in status, f"{user} has capabilities")
        require("NoNewPrivs:\t1" in status, f"{user} can gain privileges by executing a file")


@on_slot
async def another_users_home_is_not_the_agents(slot: Slot) -> None:
    agents = await output_of(slot, "echo $HOME")
    for user in (OTHER, "0"):
        home = (await slot.exec("echo $HOME", user=user)).stdout.strip()
        require(home != agents, f"the home of {user} is the agent's")
        require(
            (await slot.exec(f"touch {home}/x")).exit_code != 0, f"the agent can write the home of {user}"
        )


@on_slot
async def each_user_has_shells_of_their_own(slot: Slot) -> None:
    await slot.exec("cd /tmp; export A=theirs", user=OTHER)
    await slot.exec("export A=mine")
    expect(await output_of(slot, "echo $PWD $A"), f"{slot.workspace} mine")
    expect((await slot.exec("echo $PWD $A", user=OTHER)).stdout, "/tmp theirs\n")
    expect(
        (await slot.exec("echo $PWD ${A-unset}", user=OTHER, shell="b")).stdout, f"{slot.workspace} unset\n"
    )


@on_slot
async def users_work_at_the_same_time(slot: Slot) -> None:
    other = asyncio.create_task(slot.exec("until [ -e /tmp/go ]; do sleep 0.02; done; echo went", user=OTHER))
    await slot.exec("touch /tmp/go")
    expect((await other).stdout, "went\n")


@on_slot
async def a_timeout_ends_all_that_another_user_started(slot: Slot) -> None:
    await slot.exec("cd /tmp; export A=theirs; sleep 631 >/dev/null 2>&1 &", user=OTHER)
    command = "setsid sleep 632 & (env -i setsid sleep 633 >/dev/null 2>&1 &); echo partial; sleep 634"
    result = await slot.exec(command, user=OTHER, timeout_s=0.5)
    expect((result.timed_out, result.stdout), (True, "partial\n"))
    expect(await sleepers(slot, "sleep 63"), {"631"})
    expect((await slot.exec("echo $PWD ${A-unset}", user=OTHER)).stdout, f"{slot.workspace} unset\n")


@on_slot
async def a_timeout_leaves_other_users_alone(slot: Slot) -> None:
    await slot.exec("sleep 641 >/dev/null 2>&1 &")
    await slot.exec("rm -f /tmp/there", user=OTHER)
    theirs = asyncio.create_task(slot.exec(": >/tmp/there; exec sleep 642", user=OTHER, timeout_s=600))
    await slot.exec("until [ -e /tmp/there ]; do sleep 0.02; done")
    expect((await slot.exec("sleep 649", timeout_s=0.3)).timed_out, True)
    expect((await slot.exec("sleep 649", timeout_s=0.3, user=OTHER, shell="b")).timed_out, True)
    expect(await sleepers(slot, "sleep 64"), {"641", "642"})
    theirs.cancel()
    await asyncio.wait({theirs})
    expect(await sleepers(slot, "sleep 64"), {"641"})


@on_slot
async def a_fork_bomb_of_another_user_is_ended(slot: Slot) -> None:
    await slot.exec("true", user=OTHER)
    bomb = "bomb() { bomb | bomb & }; bomb; sleep 600"
    expect((await slot.exec(bomb, user=OTHER, timeout_s=1)).timed_out, True)
    expect(await output_of(slot, "echo fine"), "fine")


@on_slot
async def the_agent_reaches_nothing_of_another_users(slot: Slot) -> None:
    await slot.exec("sleep 651 >/dev/null 2>&1 & echo secret >/tmp/theirs; chmod 600 /tmp/theirs", user=OTHER)
    for command in (
        "cat /tmp/theirs",
        "mv /tmp/theirs /tmp/others || rm -f /tmp/theirs && ! [ -e /tmp/theirs ]",
        "chmod 700 /tmp",
        "for process in /proc/[0-9]*; do grep -q 651 $process/cmdline && cat $process/environ; done | grep .",
        "for name in /dev/shm/.[!.]*; do mv $name /dev/shm/x || rm -r $name || ls $name; done",
        "kill -KILL -1",
    ):
        result = await slot.exec(command, isolated=True)
        require(result.exit_code != 0, f"{command!r} gave {result}")
    expect(await sleepers(slot, "sleep 65"), {"651"})
    expect((await slot.exec("cat /tmp/theirs", user=OTHER)).stdout, "secret\n")


async def sleepers(slot: Slot, marker: str) -> set[str]:
    return {line.split()[1] for line in await survivors(slot, marker)}
