"""Which of several equal servers gets a call.

A session keeps to one server, because that one has its history in the prefix cache, unless that server is
down or clearly busier than the rest: rendezvous hashing with bounded load. Nothing is remembered of a
session, so nothing has to be forgotten when it ends.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from trajectories.errors import ConfigError

LOAD_FACTOR = 1.25
"""A server may have this many times its even share of calls before sessions move away from it."""

FIRST_REST_S = 1.0
LONGEST_REST_S = 60.0
"""How long a server that failed is left alone: doubling with each failure in a row."""


class Replica:
    """One server."""

    def __init__(self, url: str):
        self.url = url
        self.in_flight = 0
        self.failures = 0
        """Failures in a row."""
        self.rests_until = 0.0


class Replicas:
    """Equal servers and how each is doing.

    Args:
        urls: Their base URLs.
        clock: Seconds that only ever increase.
    """

    def __init__(self, urls: Sequence[str], clock: Callable[[], float] = time.monotonic):
        if not urls:
            raise ConfigError("base_url: at least one URL is needed")
        for url in urls:
            if not url.startswith(("http://", "https://")):
                raise ConfigError(f"base_url: {url!r} must begin with http:// or https://")
        self.all = [Replica(url.rstrip("/")) for url in dict.fromkeys(urls)]
        self._clock = clock

    @contextmanager
    def call(self, session_id: str) -> Iterator[Replica]:
        """Choose a server for one call and count the call as its load."""
        replica = self._choose(session_id)
        replica.in_flight += 1
        try:
            yield replica
        finally:
            replica.in_flight -= 1

    def succeeded(self, replica: Replica) -> None:
        """Note that a server answered."""
        replica.failures = 0
        replica.rests_until = 0.0

    def failed(self, replica: Replica) -> None:
        """Note that a server could not be reached or broke down; it is left alone for a while."""
        rest = min(FIRST_REST_S * 2**replica.failures, LONGEST_REST_S)
        replica.failures += 1
        replica.rests_until = self._clock() + rest

    def _choose(self, session_id: str) -> Replica:
        if len(self.all) == 1:
            return self.all[0]
        now = self._clock()
        awake = [replica for replica in self.all if replica.rests_until <= now]
        if not awake:
            return min(self.all, key=lambda replica: replica.rests_until)
        share = (sum(replica.in_flight for replica in awake) + 1) / len(awake)
        free = [replica for replica in awake if replica.in_flight < LOAD_FACTOR * share]
        return max(free, key=lambda replica: _weight(replica.url, session_id))


def _weight(url: str, session_id: str) -> bytes:
    return hashlib.blake2b(f"{url}\n{session_id}".encode(), digest_size=8).digest()
