"""Arithmetic word problems of two to four steps, generated from a seed."""

import random
from collections.abc import Callable

from environments.items import TaskItem

NAMES = [
    "Ada",
    "Ben",
    "Clara",
    "David",
    "Emma",
    "Felix",
    "Grace",
    "Hugo",
    "Iris",
    "Jonas",
    "Kira",
    "Leo",
    "Mina",
    "Noah",
    "Olga",
    "Paul",
]

Problem = tuple[str, int, str]
"""Question, answer, and the computation that gives it."""


def generate_problems(seed: int, count: int) -> list[TaskItem]:
    """Return ``count`` different problems in GSM8K's form; equal seeds give equal problems."""
    draws = random.Random(f"gsm8k/{seed}")
    problems: dict[str, TaskItem] = {}
    while len(problems) < count:
        question, answer, steps = draws.choice(KINDS)(draws)
        problems.setdefault(question, {"question": question, "answer": f"{steps} = {answer}\n#### {answer}"})
    return list(problems.values())


def baking(draws: random.Random) -> Problem:
    """Trays of rolls, some of them sold, the rest packed."""
    trays, rolls, sold = draws.randint(3, 30), draws.randint(6, 48), draws.randint(2, 15)
    question = (
        f"A baker fills {trays} trays with {rolls} rolls each. {draws.choice(NAMES)} buys {sold} rolls. "
        "How many rolls are left?"
    )
    return question, trays * rolls - sold, f"{trays} * {rolls} - {sold}"


def saving(draws: random.Random) -> Problem:
    """Weekly savings with a start and one expense."""
    name, start, weekly, weeks = (
        draws.choice(NAMES),
        draws.randint(5, 90),
        draws.randint(3, 40),
        draws.randint(2, 52),
    )
    spent = draws.randint(1, start)
    question = (
        f"{name} has ${start}, spends ${spent} on a book, and then saves ${weekly} every week. "
        f"How many dollars does {name} have after {weeks} weeks?"
    )
    return question, start - spent + weekly * weeks, f"{start} - {spent} + {weekly} * {weeks}"


def travelling(draws: random.Random) -> Problem:
    """A way in two parts, there and back."""
    name, first, second, trips = (
        draws.choice(NAMES),
        draws.randint(2, 60),
        draws.randint(2, 60),
        draws.randint(2, 9),
    )
    question = (
        f"{name} rides {first} km to a lake, then {second} km to a village, and the same way home. "
        f"How many km does {name} ride in {trips} such trips?"
    )
    return question, 2 * (first + second) * trips, f"2 * ({first} + {second}) * {trips}"


def sharing(draws: random.Random) -> Problem:
    """Boxes shared evenly among friends."""
    friends, each, boxes = draws.randint(2, 9), draws.randint(2, 25), draws.randint(2, 8)
    size = friends * each
    question = (
        f"{draws.choice(NAMES)} has {boxes} boxes of {size} stickers each and shares all of them evenly "
        f"among {friends} friends. How many stickers does each friend get?"
    )
    return question, boxes * each, f"{boxes} * {size} / {friends}"


def ages(draws: random.Random) -> Problem:
    """Ages related by a factor and a difference."""
    young, old, middle = draws.sample(NAMES, 3)
    age, factor, older = draws.randint(3, 20), draws.randint(2, 4), draws.randint(1, 12)
    question = (
        f"{young} is {age} years old. {old} is {factor} times as old as {young}, and {middle} is {older} "
        f"years older than {young}. What is the sum of the three ages?"
    )
    return question, age + factor * age + age + older, f"{age} + {factor} * {age} + {age} + {older}"


KINDS: list[Callable[[random.Random], Problem]] = [baking, saving, travelling, sharing, ages]
