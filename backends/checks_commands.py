"""Conformance: what running a command means, and what a shell keeps between commands."""

import asyncio
import tempfile
from pathlib import Path

from backends.base import Command, Slot
from backends.check import Factory, expect, on_backend, on_slot, output_of, require

C_LIBRARYS_OWN_SIGNALS = 0b11 << 31
"""Signals 32 and 33, which glibc lets no program change; what it starts with posix_spawn may ignore them."""


@on_slot
async def stdout_and_stderr_are_separate(slot: Slot) -> None:
    result = await slot.exec("echo out; echo err >&2")
    expect((result.stdout, result.stderr, result.exit_code), ("out\n", "err\n", 0))


@on_slot
async def merged_output_keeps_its_order(slot: Slot) -> None:
    result = await slot.exec("echo 1; echo 2 >&2; echo 3", merge_stderr=True)
    expect((result.stdout, result.stderr), ("1\n2\n3\n", ""))


@on_slot
async def exit_codes_are_reported(slot: Slot) -> None:
    for command, code in (("true", 0), ("false", 1), ("(exit 42)", 42), ("no-such-command", 127)):
        expect((await slot.exec(command)).exit_code, code)
    expect((await slot.exec("bash -c 'kill -KILL $$'")).exit_code, 137)


@on_slot
async def the_last_exit_code_can_be_asked_for(slot: Slot) -> None:
    await slot.exec("(exit 7)")
    expect(await output_of(slot, "echo $?"), "7")


@on_slot
async def output_is_kept_byte_for_byte(slot: Slot) -> None:
    result = await slot.exec(r"printf 'no newline at the end'; printf 'é\x00\t' >&2")
    expect((result.stdout, result.stderr), ("no newline at the end", "é\0\t"))


@on_slot
async def undecodable_output_is_replaced_and_counted(slot: Slot) -> None:
    result = await slot.exec(r"printf 'a\377b'")
    expect((result.stdout, result.stdout_bytes), ("a\ufffdb", 3))


@on_slot
async def the_working_directory_is_kept(slot: Slot) -> None:
    await slot.exec("mkdir -p a/b && cd a/b")
    expect(await output_of(slot, "pwd"), f"{slot.workspace}/a/b")


@on_slot
async def exports_variables_and_functions_are_kept(slot: Slot) -> None:
    await slot.exec("export A='1 2'; B=3; declare -A M=([k]=4); f() { echo \"$A $B ${M[k]}\"; }")
    expect(await output_of(slot, "f; bash -c 'echo $A'"), "1 2 3 4\n1 2")


@on_slot
async def commands_may_span_lines(slot: Slot) -> None:
    expect(await output_of(slot, "for i in 1 2; do\n  echo $i\ndone\ncat <<'X'\n$i\nX\n"), "1\n2\n$i")


@on_slot
async def a_long_command_arrives_whole(slot: Slot) -> None:
    text = "x" * 200_000
    expect(await output_of(slot, f"echo {text}"), text)


@on_slot
async def characters_are_never_reinterpreted(slot: Slot) -> None:
    text = "'\"\\$`!*?[]{}~#&;|<> \té\u2028\U0001f600"
    quoted = text.replace("'", "'\\''")
    result = await slot.exec(f"printf %s '{quoted}'")
    expect(result.stdout, text)


@on_slot
async def a_command_that_no_shell_can_hold_is_a_failed_command(slot: Slot) -> None:
    require((await slot.exec("echo a\0b")).exit_code, "a NUL byte was accepted")
    expect((await slot.exec("echo '\ud800'")).exit_code, 0)
    expect(await output_of(slot, "echo fine"), "fine")


@on_slot
async def a_syntax_error_harms_nothing(slot: Slot) -> None:
    for command in ("echo 'unclosed", "if true; then", "fi", "echo $(", "}", "cat <<X"):
        await slot.exec(command)
        expect(await output_of(slot, "echo fine"), "fine")


@on_slot
async def stray_control_words_harm_nothing(slot: Slot) -> None:
    for command in ("break", "continue", "return 3", "break 5", "shift 9", "wait"):
        await slot.exec(command)
        expect(await output_of(slot, "echo fine"), "fine")
    for command in ("break 9", "continue 9", "for i in 1; do continue 3; done", "while :; do break 3; done"):
        expect((await slot.exec(command, timeout_s=10)).exit_code, 0)
        expect(await output_of(slot, "echo fine"), "fine")


@on_slot
async def a_shell_that_dies_between_commands_misses_none(slot: Slot) -> None:
    shell = await output_of(slot, "cd /tmp; export A=1; echo $$")
    await slot.exec("(sleep 0.3; kill -KILL $$) & disown")
    gone = f"while kill -0 {shell} 2>/dev/null; do sleep 0.05; done; sleep 0.1"
    await output_of(slot, gone, shell="other")
    result = await slot.exec("echo $A; pwd", timeout_s=10)
    expect((result.stdout, result.timed_out), ("1\n/tmp\n", False))


@on_slot
async def exit_ends_the_command_and_keeps_directory_and_exports(slot: Slot) -> None:
    await slot.exec("export A=1; unset HOME; cd /tmp")
    expect((await slot.exec("echo bye; exit 3")).exit_code, 3)
    expect(await output_of(slot, "echo $A $PWD ${HOME-unset}"), "1 /tmp unset")


@on_slot
async def exec_ends_the_command_too(slot: Slot) -> None:
    result = await slot.exec("exec echo replaced")
    expect((result.stdout, result.exit_code), ("replaced\n", 0))
    expect(await output_of(slot, "echo fine"), "fine")


@on_slot
async def errexit_ends_the_command_where_it_failed(slot: Slot) -> None:
    result = await slot.exec("set -e; echo before; false; echo after")
    expect((result.stdout, result.exit_code), ("before\n", 1))
    expect(await output_of(slot, "false; echo fine"), "fine")


@on_slot
async def a_shell_that_kills_itself_comes_back(slot: Slot) -> None:
    await slot.exec("export A=1")
    expect((await slot.exec("kill -KILL $$")).exit_code, 137)
    expect(await output_of(slot, "echo $A"), "1")


@on_slot
async def tracing_shows_nothing_of_the_harness(slot: Slot) -> None:
    await slot.exec("set -x")
    result = await slot.exec("echo hi")
    expect([line for line in result.stderr.splitlines() if not line.endswith(" echo hi")], [])


@on_slot
async def settings_of_the_shell_do_not_change_how_it_is_asked(slot: Slot) -> None:
    await slot.exec("export TMOUT=1 IFS=e LC_ALL=C LANG=C; set -f")
    await asyncio.sleep(1.2)
    expect(await output_of(slot, "echo 'é' fine"), "é fine")
    await slot.exec("export LC_ALL=C.UTF-8")
    expect(await output_of(slot, "echo 'é\\' fine"), "é\\ fine")


@on_slot
async def a_command_inherits_no_descriptor_of_the_harness(slot: Slot) -> None:
    expect((await output_of(slot, "ls /proc/self/fd")).split(), ["0", "1", "2", "3"])
    expect((await output_of(slot, "ls /proc/self/fd", shell="control")).split(), ["0", "1", "2", "3"])


@on_slot
async def a_command_inherits_no_ignored_signal(slot: Slot) -> None:
    for shell in ("main", "control"):
        ignored = int((await output_of(slot, "grep SigIgn /proc/self/status", shell=shell)).split()[1], 16)
        expect(ignored & ~C_LIBRARYS_OWN_SIGNALS, 0)


@on_slot
async def redirecting_the_shell_lasts_one_command(slot: Slot) -> None:
    await slot.exec("exec >/dev/null 2>&1")
    expect(await output_of(slot, "echo heard"), "heard")


@on_slot
async def standard_input_is_empty(slot: Slot) -> None:
    expect((await slot.exec("cat; read -r line; echo $?")).stdout, "1\n")


@on_slot
async def standard_input_is_passed_byte_for_byte(slot: Slot) -> None:
    data = bytes(range(256)) * 5000
    result = await slot.exec("cat >input; cksum <input", stdin=data)
    expect(await slot.read_file("input"), data)
    expect(result.exit_code, 0)


@on_slot
async def a_command_with_input_keeps_the_shells_state(slot: Slot) -> None:
    await slot.exec("read -r A; export A; cd /tmp", stdin=b"value\nrest\n")
    expect(await output_of(slot, "echo $A $PWD"), "value /tmp")


@on_slot
async def unread_input_is_never_taken_for_commands(slot: Slot) -> None:
    result = await slot.exec("true", stdin=b"touch /tmp/pwned\n\0touch /tmp/pwned\0" * 20_000)
    expect(result.exit_code, 0)
    expect((await slot.exec("ls /tmp/pwned")).exit_code, 2)


@on_slot
async def input_that_finds_no_room_leaves_nothing(slot: Slot) -> None:
    await slot.exec("head -c 20G /dev/zero >/tmp/filler", timeout_s=100)
    result = await slot.exec("touch /tmp/ran", stdin=b"x" * 500_000)
    expect((result.exit_code, "No space left" in result.stderr), (1, True))
    expect(await output_of(slot, "rm /tmp/filler; ls -A /tmp"), "")


@on_slot
async def variables_can_be_set_for_one_command(slot: Slot) -> None:
    value = "two words '$x' \"é\n"
    result = await slot.exec('printf %s "$A"; bash -c \'printf %s "$A"\'', env={"A": value})
    expect(result.stdout, value * 2)
    expect(await output_of(slot, "echo ${A-unset}"), "unset")


@on_slot
async def a_variable_that_cannot_exist_is_refused(slot: Slot) -> None:
    for name in ("", "A B", "1A", "A=B", "A;id"):
        try:
            await slot.exec("true", env={name: "x"})
        except ValueError:
            continue
        raise AssertionError(f"{name!r} was accepted as a variable's name")


@on_slot
async def a_user_that_cannot_be_had_is_refused(slot: Slot) -> None:
    own = await output_of(slot, "id -u")
    for user in ("", ":", "0:0:0", "no such user", "99999999999", own):
        try:
            await slot.exec("true", user=user)
        except ValueError as error:
            require("user: " in str(error), f"the error does not name the argument: {error}")
        else:
            raise AssertionError(f"{user!r} was accepted as a user")
    expect(await output_of(slot, "echo fine"), "fine")


@on_slot
async def an_isolated_command_leaves_nothing_in_the_shell(slot: Slot) -> None:
    result = await slot.exec("cd /tmp; export A=1; f() { :; }; exit 5", isolated=True)
    expect(result.exit_code, 5)
    expect(await output_of(slot, "echo $PWD ${A-unset}"), f"{slot.workspace} unset")


@on_slot
async def long_output_keeps_head_and_tail_with_exact_counts(slot: Slot) -> None:
    result = await slot.exec("echo first; seq 100000; echo last", max_output_bytes=1000)
    total = len("first\nlast\n") + len("\n".join(map(str, range(1, 100001)))) + 1
    expect((result.truncated, result.stdout_bytes), (True, total))
    require(result.stdout.startswith("first\n1\n"), "the head is missing")
    require(result.stdout.endswith("100000\nlast\n"), "the tail is missing")
    require(f"{total - 1000} bytes omitted" in result.stdout, "the note does not say how much is missing")


@on_slot
async def a_cut_never_splits_a_character(slot: Slot) -> None:
    result = await slot.exec("for i in {1..500}; do printf '€'; done", max_output_bytes=101)
    require("\ufffd" not in result.stdout, f"split in {result.stdout!r}")


@on_backend
async def truncated_output_can_be_spilled_whole(factory: Factory) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with factory(warm=0, spill_directory=Path(directory)) as backend, backend.acquire("a") as slot:
            result = await slot.exec("seq 100000", max_output_bytes=1000)
            short = await slot.exec("echo short")
        require(result.stdout_spill is not None, "nothing was spilled")
        assert result.stdout_spill is not None
        expect(result.stdout_spill.read_text().split(), [str(n) for n in range(1, 100_001)])
        expect(short.stdout_spill, None)


@on_slot
async def output_streams_while_the_command_runs(slot: Slot) -> None:
    heard, chunks = asyncio.Event(), list[tuple[str, bytes]]()

    def listen(channel: str, data: bytes) -> None:
        chunks.append((channel, data))
        heard.set()

    running = asyncio.create_task(
        slot.exec("echo early; until [ -e go ]; do sleep 0.02; done; echo late >&2", on_output=listen)
    )
    await heard.wait()
    expect((running.done(), chunks), (False, [("stdout", b"early\n")]))
    await slot.write_file("go", b"")
    await running
    expect(chunks[1:], [("stderr", b"late\n")])


@on_slot
async def an_error_of_the_listener_ends_the_command_and_is_raised(slot: Slot) -> None:
    def listen(channel: str, data: bytes) -> None:
        raise LookupError("the listener's own")

    try:
        await slot.exec("echo x; sleep 600", on_output=listen)
    except LookupError:
        expect(await output_of(slot, "echo fine"), "fine")
    else:
        raise AssertionError("the listener's error was lost")


@on_slot
async def a_flood_of_output_is_counted_to_the_byte(slot: Slot) -> None:
    result = await slot.exec("head -c 50000000 /dev/zero; head -c 3000000 /dev/zero >&2")
    expect((result.stdout_bytes, result.stderr_bytes), (50_000_000, 3_000_000))


@on_slot
async def commands_of_one_shell_run_in_order_one_at_a_time(slot: Slot) -> None:
    await asyncio.gather(*(slot.exec(f"sleep 0.05; echo {n} >>order", timeout_s=30) for n in range(5)))
    expect(await output_of(slot, "cat order"), "0\n1\n2\n3\n4")


@on_slot
async def waiting_for_the_shell_does_not_count(slot: Slot) -> None:
    first = asyncio.create_task(slot.exec("sleep 4"))
    await asyncio.sleep(0)
    second = await slot.exec("true", timeout_s=3)
    expect((second.timed_out, (await first).exit_code), (False, 0))
    require(second.duration_s < 3, f"duration_s is {second.duration_s}")


@on_slot
async def named_shells_share_files_but_no_state(slot: Slot) -> None:
    await slot.exec("cd /tmp; export A=1; touch shared", shell="main")
    expect(
        await output_of(slot, "echo $PWD ${A-unset}; ls /tmp/shared", shell="b"),
        f"{slot.workspace} unset\n/tmp/shared",
    )


@on_slot
async def named_shells_run_at_the_same_time(slot: Slot) -> None:
    waiting = asyncio.create_task(slot.exec("until [ -e go ]; do sleep 0.02; done; echo went", shell="a"))
    await slot.exec("touch go", shell="b")
    expect((await waiting).stdout, "went\n")


@on_slot
async def background_jobs_live_on_and_hold_nothing_up(slot: Slot) -> None:
    await slot.exec("(until [ -e go ]; do sleep 0.02; done; echo done >result) & sleep 1000 &")
    await slot.exec("touch go; wait %1")
    expect(await output_of(slot, "cat result; jobs -r | wc -l"), "done\n1")


@on_slot
async def output_of_background_jobs_is_not_lost(slot: Slot) -> None:
    await slot.exec("(until [ -e go ]; do sleep 0.02; done; echo from the back; touch said) &")
    await slot.exec("touch go; until [ -e said ]; do sleep 0.02; done", shell="b")
    heard = [await slot.exec("true") for _ in range(2)]
    expect("".join(result.stdout for result in heard), "from the back\n")


@on_backend
async def a_batch_runs_concurrently_and_keeps_failures_in_place(factory: Factory) -> None:
    async with factory(warm=0) as backend:
        a, b = await asyncio.gather(backend.acquire("a"), backend.acquire("b"))
        await a.write_file("name", b"a")
        batch = [
            Command(a, "until [ -e go ]; do sleep 0.02; done; cat name"),
            Command(a, "false"),
            Command(b, "sleep 600"),
        ]
        running = asyncio.create_task(backend.execute_batch(batch))
        await a.write_file("go", b"")
        await backend.release(b)
        first, second, third = await running
        require(not isinstance(first, BaseException) and first.stdout == "a", f"first is {first}")
        require(not isinstance(second, BaseException) and second.exit_code == 1, f"second is {second}")
        require(isinstance(third, Exception), f"the command in a released slot gave {third}")
