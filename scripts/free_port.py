"""A port for a server that a script or a test starts, with one that is killed and started again in mind."""

import random
import socket


def free_port() -> int:
    """Return a port of loopback that nobody listens on, and that no outgoing connection will be given.

    Linux gives those the ports from 32768 on. One of them could be taken before the server listens, even by a
    client that tries to reach that server.
    """
    draws = random.SystemRandom()
    while True:
        port = draws.randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
