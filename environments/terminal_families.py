"""The families of shell and file tasks; each draws one task from a seeded generator.

A task says what the workspace shall look like. ``files`` is its first state, each of ``checks`` a command
that succeeds once the task is done, and ``solution`` a command that does it: with it, tests prove for every
family that the checks fail before and pass after.
"""

import hashlib
import random
from collections.abc import Callable
from typing import Literal

from environments.items import TaskItem

Tier = Literal["easy", "medium", "hard"]

Family = Callable[[random.Random], TaskItem]

NOUNS = """
amber anchor apple arrow autumn badge basket birch bottle breeze bridge butter candle canyon castle
cedar cherry clover cobalt copper coral cotton crystal desert dragon eagle ember falcon feather
forest garden ginger glacier granite harbor hazel honey indigo island ivory jasmine jungle kettle
lantern lemon linen lotus maple marble meadow mirror mosaic nectar oasis olive onyx orchid otter
paper pebble pepper pillow planet prairie quartz rabbit raven ribbon river saddle saffron silver
spruce summer sunset thistle timber topaz tulip tunnel valley velvet violet walnut willow winter
zebra
"""

WORDS = NOUNS.split()


def make_directory(draws: random.Random) -> TaskItem:
    """Create one directory."""
    (name,) = _words(draws, 1)
    return _task("easy", f"Create a directory named {name}.", [f"test -d {name}"], f"mkdir {name}")


def write_word(draws: random.Random) -> TaskItem:
    """Put one word into a new file."""
    word, name = _words(draws, 2)
    path = f"{name}{draws.randint(1, 99)}.log"
    return _task(
        "easy",
        f"Write the word {word} to a file named {path}.",
        [_holds(path, word)],
        f"echo {word} > {path}",
    )


def empty_file(draws: random.Random) -> TaskItem:
    """Create an empty file."""
    (name,) = _words(draws, 1)
    path = f"{name}.txt"
    checks = [f"test -f {path}", f"! test -s {path}"]
    return _task("easy", f"Create an empty file named {path}.", checks, f"touch {path}")


def copy_file(draws: random.Random) -> TaskItem:
    """Copy a file beside itself."""
    old, new, word = _words(draws, 3)
    checks = [_holds(f"{new}.txt", word), _holds(f"{old}.txt", word)]
    files = {f"{old}.txt": f"{word}\n"}
    prompt = f"Copy the file {old}.txt to {new}.txt."
    return _task("easy", prompt, checks, f"cp {old}.txt {new}.txt", files)


def rename_file(draws: random.Random) -> TaskItem:
    """Rename a file."""
    old, new, word = _words(draws, 3)
    checks = [_holds(f"{new}.txt", word), f"! test -e {old}.txt"]
    prompt = f"Rename the file {old}.txt to {new}.txt."
    return _task("easy", prompt, checks, f"mv {old}.txt {new}.txt", {f"{old}.txt": f"{word}\n"})


def delete_file(draws: random.Random) -> TaskItem:
    """Delete one of two files."""
    gone, kept = _words(draws, 2)
    files = {f"{gone}.txt": "x\n", f"{kept}.txt": "x\n"}
    checks = [f"! test -e {gone}.txt", f"test -e {kept}.txt"]
    return _task("easy", f"Delete the file {gone}.txt.", checks, f"rm {gone}.txt", files)


def count_lines(draws: random.Random) -> TaskItem:
    """Count the lines of a file."""
    source, target = _words(draws, 2)
    lines = _words(draws, draws.randint(11, 60))
    prompt = f"Count the lines of {source}.txt and write the number to {target}.txt."
    return _task(
        "medium",
        prompt,
        [_holds(f"{target}.txt", str(len(lines)))],
        f"wc -l < {source}.txt > {target}.txt",
        {f"{source}.txt": _text(lines)},
    )


def filter_lines(draws: random.Random) -> TaskItem:
    """Pick the lines that hold a word."""
    source, target, word = _words(draws, 3)
    lines = [f"{draws.choice([word, 'granola'])} {draws.randint(100, 999)}" for _ in range(20)] + [
        f"{word} 7"
    ]
    wanted = [line for line in lines if word in line]
    prompt = (
        f"Write every line of {source}.log that contains the word {word} to {target}.log, in the same order."
    )
    return _task(
        "medium",
        prompt,
        [_holds(f"{target}.log", *wanted)],
        f"grep {word} {source}.log > {target}.log",
        {f"{source}.log": _text(lines)},
    )


def sort_lines(draws: random.Random) -> TaskItem:
    """Sort a file into another."""
    source, target = _words(draws, 2)
    lines = _words(draws, 15)
    prompt = f"Sort the lines of {source}.txt alphabetically and write them to {target}.txt."
    return _task(
        "medium",
        prompt,
        [_holds(f"{target}.txt", *sorted(lines))],
        f"sort {source}.txt > {target}.txt",
        {f"{source}.txt": _text(lines)},
    )


def replace_word(draws: random.Random) -> TaskItem:
    """Replace a word throughout a file."""
    name, old, new, *others = _words(draws, 6)
    lines = [f"{draws.choice(others)} {old} {draws.randint(1, 9)}" for _ in range(8)]
    wanted = [line.replace(old, new) for line in lines]
    prompt = f"In the file {name}.txt, replace every {old} with {new}."
    return _task(
        "medium",
        prompt,
        [_holds(f"{name}.txt", *wanted)],
        f"sed -i s/{old}/{new}/g {name}.txt",
        {f"{name}.txt": _text(lines)},
    )


def move_logs(draws: random.Random) -> TaskItem:
    """Move the files of one kind into a new directory."""
    folder, *names = _words(draws, 6)
    logs, texts = names[:3], names[3:]
    files = {**{f"{n}.log": "x\n" for n in logs}, **{f"{n}.txt": "x\n" for n in texts}}
    checks = [f"test -f {folder}/{n}.log && ! test -e {n}.log" for n in logs] + [
        f"test -f {n}.txt" for n in texts
    ]
    prompt = f"Move all .log files into a new directory named {folder}. Leave the other files where they are."
    return _task("medium", prompt, checks, f"mkdir {folder} && mv *.log {folder}/", files)


def sum_column(draws: random.Random) -> TaskItem:
    """Add up a column of a table."""
    table, target = _words(draws, 2)
    rows = [(word, draws.randint(1, 40), draws.randint(5, 900)) for word in _words(draws, 25)]
    lines = ["item,count,amount", *(f"{item},{count},{amount}" for item, count, amount in rows)]
    total = sum(amount for _, _, amount in rows)
    prompt = f"Add up the column amount of {table}.csv and write the sum to {target}.txt."
    return _task(
        "hard",
        prompt,
        [_holds(f"{target}.txt", str(total))],
        f"awk -F, 'NR > 1 {{s += $3}} END {{print s}}' {table}.csv > {target}.txt",
        {f"{table}.csv": _text(lines)},
    )


def most_errors(draws: random.Random) -> TaskItem:
    """Find out who caused most errors in a log."""
    target, *users = _words(draws, 5)
    counts = dict(zip(users, draws.sample(range(3, 12), len(users)), strict=True))
    lines = [f"ERROR user={user} code={draws.randint(1, 9)}" for user in users for _ in range(counts[user])]
    lines += [f"INFO user={draws.choice(users)} ok" for _ in range(40)]
    draws.shuffle(lines)
    culprit = max(counts, key=lambda user: counts[user])
    prompt = f"Which user has the most ERROR lines in app.log? Write only the user's name to {target}.txt."
    solution = (
        "grep ^ERROR app.log | sed 's/.*user=\\([a-z]*\\).*/\\1/' | sort | uniq -c | sort -rn | "
        f"head -n 1 | awk '{{print $2}}' > {target}.txt"
    )
    return _task("hard", prompt, [_holds(f"{target}.txt", culprit)], solution, {"app.log": _text(lines)})


def mend_script(draws: random.Random) -> TaskItem:
    """Mend a script that leaves the last line out; the check runs it on other numbers too."""
    (name,) = _words(draws, 1)
    numbers = [draws.randint(2, 90) for _ in range(6)]
    says = f"# Prints the sum of all numbers in {name}.txt."
    does = f"sed '$d' {name}.txt | awk '{{s += $1}} END {{print s}}'"
    others = [draws.randint(2, 90) for _ in range(4)]
    checks = [
        f'test "$(sh sum.sh)" = {sum(numbers)}',
        f'printf "%s\\n" {" ".join(map(str, others))} > {name}.txt && test "$(sh sum.sh)" = {sum(others)}',
    ]
    prompt = (
        f"The script sum.sh shall add up all numbers in {name}.txt, but its result is too small. Mend it."
    )
    solution = f"sed -i \"s/sed '.d' {name}.txt/cat {name}.txt/\" sum.sh"
    files = {"sum.sh": _text([says, does]), f"{name}.txt": _text([str(number) for number in numbers])}
    return _task("hard", prompt, checks, solution, files)


def pack_folder(draws: random.Random) -> TaskItem:
    """Pack the small files of a tree and delete them."""
    folder, archive, small, large = _words(draws, 4)
    files = {f"{folder}/{small}.dat": "x" * 10, f"{folder}/{large}.dat": "y" * 5000}
    prompt = (
        f"Pack the files in the directory {folder} that are smaller than 1000 bytes into {archive}.tar.gz, "
        f"then delete them from {folder}."
    )
    checks = [
        f"tar -xzOf {archive}.tar.gz --wildcards '*{small}.dat' | grep -q x",
        f"! tar -tzf {archive}.tar.gz | grep -q {large}",
        f"! test -e {folder}/{small}.dat && test -e {folder}/{large}.dat",
    ]
    found = f"find {folder} -type f -size -1000c"
    solution = f"tar -czf {archive}.tar.gz $({found}) && rm $({found})"
    return _task("hard", prompt, checks, solution, files)


FAMILIES: dict[Tier, list[Family]] = {
    "easy": [make_directory, write_word, empty_file, copy_file, rename_file, delete_file],
    "medium": [count_lines, filter_lines, sort_lines, replace_word, move_logs],
    "hard": [sum_column, most_errors, mend_script, pack_folder],
}


def _task(
    tier: Tier, prompt: str, checks: list[str], solution: str, files: dict[str, str] | None = None
) -> TaskItem:
    digest = hashlib.sha256(f"{prompt}{files}".encode()).hexdigest()[:12]
    return {
        "id": f"{tier}-{digest}",
        "tier": tier,
        "prompt": prompt,
        "files": files or {},
        "checks": checks,
        "solution": solution,
    }


def _words(draws: random.Random, count: int) -> list[str]:
    return draws.sample(WORDS, count)


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _holds(path: str, *lines: str) -> str:
    """Return a command that succeeds where the file holds the lines, whatever white space surrounds them."""
    quoted = " ".join(f"'{line}'" for line in lines)
    normal = "sed 's/^[[:space:]]*//; s/[[:space:]]*$//; /^$/d'"
    return f'test "$({normal} {path})" = "$(printf \'%s\\n\' {quoted})"'
