"""Sessions keep to a server, unless it is down or clearly busier than the rest."""

from collections import Counter

import pytest

from inference.replicas import FIRST_REST_S, LONGEST_REST_S, Replicas
from trajectories.errors import ConfigError

URLS = ["http://a", "http://b", "http://c"]


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def chosen(replicas: Replicas, session_id: str) -> str:
    with replicas.call(session_id) as replica:
        return replica.url


def test_a_session_always_gets_the_same_server_and_sessions_get_all_of_them():
    replicas = Replicas(URLS)
    first = {f"s{index}": chosen(replicas, f"s{index}") for index in range(300)}

    assert first == {session: chosen(Replicas(URLS[::-1]), session) for session in first}
    assert all(60 < count < 140 for count in Counter(first.values()).values())


def test_a_server_that_fails_is_left_alone_and_only_its_sessions_move():
    clock = Clock()
    replicas = Replicas(URLS, clock)
    before = {f"s{index}": chosen(replicas, f"s{index}") for index in range(60)}

    replicas.failed(replicas.all[0])
    during = {session: chosen(replicas, session) for session in before}
    clock.now += FIRST_REST_S
    after = {session: chosen(replicas, session) for session in before}

    assert "http://a" not in during.values()
    assert all(during[s] == url for s, url in before.items() if url != "http://a")
    assert after == before


def test_a_server_rests_longer_the_more_often_it_fails_in_a_row_up_to_a_bound():
    clock = Clock()
    replicas = Replicas(URLS, clock)
    rests = []
    for _ in range(12):
        replicas.failed(replicas.all[0])
        rests.append(replicas.all[0].rests_until - clock.now)

    assert rests[:3] == [FIRST_REST_S, 2 * FIRST_REST_S, 4 * FIRST_REST_S]
    assert rests[-1] == LONGEST_REST_S
    replicas.succeeded(replicas.all[0])
    replicas.failed(replicas.all[0])
    assert replicas.all[0].rests_until - clock.now == FIRST_REST_S


def test_with_every_server_resting_the_one_to_return_first_is_asked():
    replicas = Replicas(URLS, Clock())
    for replica in (replicas.all[1], *replicas.all, replicas.all[2]):
        replicas.failed(replica)

    assert chosen(replicas, "any") == "http://a"


def test_a_busy_server_passes_sessions_on():
    replicas = Replicas(URLS)
    home = chosen(replicas, "s")
    open_calls = [replicas.call("s") for _ in range(30)]
    loads = Counter(call.__enter__().url for call in open_calls)

    assert max(loads.values()) <= 1.25 * 11 + 1
    assert loads[home] == max(loads.values())
    for call in open_calls:
        call.__exit__(None, None, None)
    assert all(replica.in_flight == 0 for replica in replicas.all)
    assert chosen(replicas, "s") == home


@pytest.mark.parametrize("urls", [[], ["localhost:8000"], ["http://a", "ftp://b"]])
def test_a_url_that_cannot_work_is_a_config_error(urls):
    with pytest.raises(ConfigError, match="base_url"):
        Replicas(urls)
