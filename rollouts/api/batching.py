"""Which queued groups make up a batch: whole groups, the oldest that fit, minimum shares first.

The size of a batch is exact. Where the oldest groups do not add up to it (sizes 3, 4, 4 for a batch of 8),
the shortest stretch of the queue that can is searched, and in it the oldest groups are taken.
"""

from collections.abc import Callable, Sequence

from rollouts.api.group_store import QueuedGroup

SizeOf = Callable[[QueuedGroup], int]


def choose(
    queued: Sequence[QueuedGroup], target: int, size_of: SizeOf, minimums: dict[int, float]
) -> list[QueuedGroup] | None:
    """Choose groups whose sizes sum to ``target``, in order of arrival; None where they can't yet.

    Args:
        queued: Groups to choose from, oldest first.
        target: Size of the batch.
        size_of: Size of one group; 1 counts groups, the number of rollouts counts those.
        minimums: Least share of the batch of each environment that is alive, from 0 to 1. Shares that
            sum to more than 1 are scaled down.
    """
    scale = min(1.0, 1.0 / total) if (total := sum(minimums.values())) else 1.0
    reserved: list[QueuedGroup] = []
    for env_id, share in minimums.items():
        own = _oldest_up_to([g for g in queued if g.env_id == env_id], int(target * share * scale), size_of)
        if own is None:
            return None
        reserved += own
    taken = {group.seq for group in reserved}
    rest = [group for group in queued if group.seq not in taken]
    fill = _exactly(rest, target - sum(map(size_of, reserved)), size_of)
    return None if fill is None else sorted([*reserved, *fill], key=lambda group: group.seq)


def _oldest_up_to(groups: Sequence[QueuedGroup], share: int, size_of: SizeOf) -> list[QueuedGroup] | None:
    """Take the oldest groups until the share is reached; None where there are too few."""
    taken: list[QueuedGroup] = []
    size = 0
    for group in groups:
        if size >= share:
            break
        taken.append(group)
        size += size_of(group)
    return taken if size >= share else None


def _exactly(groups: Sequence[QueuedGroup], target: int, size_of: SizeOf) -> list[QueuedGroup] | None:
    """Choose from the shortest beginning of ``groups`` that has a subset of exactly ``target``."""
    if not 0 <= target <= sum(map(size_of, groups)):
        return None
    within = (1 << target + 1) - 1
    sums = 1  # bit n is set where some subset of the groups seen so far has size n
    end = 0
    while not sums >> target & 1:
        if end == len(groups):
            return None
        sums |= sums << size_of(groups[end]) & within
        end += 1
    return _oldest_first(groups[:end], target, size_of)


def _oldest_first(groups: Sequence[QueuedGroup], target: int, size_of: SizeOf) -> list[QueuedGroup]:
    """Of the subsets of size ``target``, of which there is one, take that with the oldest groups."""
    within = (1 << target + 1) - 1
    sums_of_later = [1]
    for group in reversed(groups):
        sums_of_later.append(sums_of_later[-1] | sums_of_later[-1] << size_of(group) & within)
    sums_of_later.pop()
    chosen: list[QueuedGroup] = []
    for group in groups:
        reachable = sums_of_later.pop()
        rest = target - size_of(group)
        if rest >= 0 and reachable >> rest & 1:
            chosen.append(group)
            target = rest
    return chosen
