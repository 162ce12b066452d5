"""Rollout ids: the same for the same items, whatever the order."""

import itertools

from rollouts.specs import plan_groups


def drawing(items):
    source = itertools.cycle(items)

    async def next_item():
        return next(source)

    return next_item


ITEMS = [{"id": "a", "prompt": "1"}, {"id": "b", "prompt": "2"}, {"prompt": "3"}]


async def plan(items, groups=3, seed=0):
    return await plan_groups("run", groups, 2, seed, drawing(items))


async def test_ids_are_made_of_run_item_and_repetition():
    ids = [spec.trajectory_id for group in await plan(ITEMS) for spec in group.rollouts]
    assert ids[:4] == ["run/a/0", "run/a/1", "run/b/0", "run/b/1"]


async def test_the_order_of_items_changes_neither_ids_nor_seeds():
    def named(groups):
        return {(s.trajectory_id, s.seed) for group in groups for s in group.rollouts}

    assert named(await plan(ITEMS)) == named(await plan(ITEMS[::-1]))


async def test_an_item_that_comes_again_is_another_group():
    groups = await plan(ITEMS, groups=6)
    assert len({group.group_id for group in groups}) == 6
    assert groups[3].group_id == "run/a#2"


async def test_every_rollout_has_its_own_seed_and_the_runs_seed_changes_all():
    first = [spec.seed for group in await plan(ITEMS, 6) for spec in group.rollouts]
    other = [spec.seed for group in await plan(ITEMS, 6, seed=1) for spec in group.rollouts]
    assert len(set(first)) == len(first)
    assert not set(first) & set(other)
    assert all(0 <= seed < 2**31 for seed in first)
