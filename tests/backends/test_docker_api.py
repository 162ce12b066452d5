import asyncio
from contextlib import asynccontextmanager

import pytest

from backends import docker_api
from backends.docker_api import DockerApi
from trajectories.errors import SandboxUnavailable


@asynccontextmanager
async def engine(tmp_path, answer):
    """Serve one answer to every call, or none; yield a client and what tells when a client has hung up."""
    hung_up = asyncio.Event()

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        if answer is not None:
            writer.write(answer)
            writer.write_eof()
        await reader.read()
        writer.close()
        hung_up.set()

    async with await asyncio.start_unix_server(serve, tmp_path / "engine"):
        api = DockerApi(f"unix://{tmp_path}/engine")
        yield api, hung_up
        await api.close()


ANSWERS = {
    "cut off": b"HTTP/1.1 200 OK\r\nContent-Length: 600\r\n\r\n[{",
    "not of an engine": b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>",
    "not of HTTP": b"220 mail\r\n\r\n",
    "empty": b"",
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
async def test_an_answer_that_is_none_means_that_the_engine_is_unavailable(tmp_path, answer):
    async with engine(tmp_path, answer) as (api, _):
        with pytest.raises(SandboxUnavailable, match="can't be reached"):
            await api.call("GET", "/containers/json")


async def test_an_engine_that_hangs_is_named_and_holds_no_descriptor(tmp_path, monkeypatch):
    monkeypatch.setattr(docker_api, "CONNECT_TIMEOUT_S", 0.1)
    async with engine(tmp_path, None) as (api, hung_up):
        with pytest.raises(SandboxUnavailable, match="can't be reached: no answer"):
            await api.call("GET", "/containers/json", timeout_s=0.1)
        hung_up.clear()
        with pytest.raises(SandboxUnavailable, match="can't be reached: no answer"):
            await api.attach("/containers/a/attach", lambda channel, data: None)
        await asyncio.wait_for(hung_up.wait(), 10)
