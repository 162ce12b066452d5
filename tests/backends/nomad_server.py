"""A stand-in for a Nomad agent: the part of its HTTP API that is used here, with real containers behind it.

Written after Nomad's API documentation; jobs start containers on the local Docker engine, and the exec stream
reaches processes in them. What Nomad itself would do beyond that (placing, forwarding, ACLs) is not here.
"""

import asyncio
import base64
import json
import uuid
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from aiohttp import web

from backends.docker_api import DockerApi, EngineError, HijackedStream, remove_container
from backends.link import STDOUT

LABEL = "lachesis.nomad-server"


@dataclass
class Job:
    """A registered job and what became of it."""

    spec: dict
    allocation: str = field(default_factory=lambda: str(uuid.uuid4()))
    container: str | None = None
    status: str = "pending"
    event: str = ""


class NomadServer:
    """The agent."""

    def __init__(self):
        self.jobs: dict[str, Job] = {}
        self.token: str | None = None
        """What requests must carry, if set."""
        self.holds_back = False
        """Whether jobs stay pending, as where no node has room."""
        self.url = ""
        self.registered = 0
        self.engine = DockerApi()
        self._id = uuid.uuid4().hex
        self._index = 1
        self._changed = asyncio.Condition()
        self._sockets: set[web.WebSocketResponse] = set()
        self._work: set[asyncio.Task] = set()

    def cut(self) -> None:
        """Break every exec stream."""
        for socket in self._sockets:
            socket._req.transport.abort()

    async def containers(self) -> list[str]:
        """Return the containers of this agent that the engine knows."""
        found = await self.engine.call(
            "GET", "/containers/json", all=True, filters={"label": [f"{LABEL}={self._id}"]}
        )
        return [entry["Id"] for entry in found]

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._checked])
        app.add_routes(
            [
                web.put("/v1/jobs", self._register),
                web.get("/v1/jobs", self._list),
                web.get("/v1/job/{job}", self._job),
                web.delete("/v1/job/{job}", self._deregister),
                web.get("/v1/job/{job}/allocations", self._allocations),
                web.get("/v1/job/{job}/evaluations", self._evaluations),
                web.get("/v1/client/allocation/{allocation}/exec", self._exec),
            ]
        )
        return app

    @web.middleware
    async def _checked(self, request, handler):
        if self.token is not None and request.headers.get("X-Nomad-Token") != self.token:
            return web.Response(status=403, text="Permission denied")
        return await handler(request)

    def _answer(self, body):
        return web.json_response(body, headers={"X-Nomad-Index": str(self._index)})

    async def _change(self):
        async with self._changed:
            self._index += 1
            self._changed.notify_all()

    async def _register(self, request):
        spec = (await request.json())["Job"]
        job = self.jobs[spec["ID"]] = Job(spec)
        self.registered += 1
        if not self.holds_back:
            task = asyncio.create_task(self._run(job))
            self._work.add(task)
            task.add_done_callback(self._work.discard)
        return self._answer({"EvalID": str(uuid.uuid4())})

    async def _run(self, job):
        task = job.spec["TaskGroups"][0]["Tasks"][0]
        config = task["Config"]
        request = {
            "Image": config["image"],
            "Entrypoint": [config["command"]],
            "Cmd": config["args"],
            "User": task["User"],
            "Labels": {LABEL: self._id},
            "HostConfig": {
                "NetworkMode": config["network_mode"],
                "CapAdd": [name.upper() for name in config["cap_add"]],
                "SecurityOpt": config["security_opt"],
                "Memory": task["Resources"]["MemoryMB"] * 2**20,
            },
        }
        try:
            job.container = (await self.engine.call("POST", "/containers/create", request))["Id"]
            await self.engine.call("POST", f"/containers/{job.container}/start")
        except EngineError as error:
            job.status, job.event = "failed", f"Failed to create container: {error}"
            await self._change()
            return
        job.status = "running"
        await self._change()
        with suppress(EngineError):
            await self.engine.call("POST", f"/containers/{job.container}/wait", timeout_s=3600)
            await remove_container(self.engine, job.container)
        job.status = "complete"
        await self._change()

    async def _list(self, request):
        prefix = request.query.get("prefix", "")
        return self._answer([{"ID": name} for name in self.jobs if name.startswith(prefix)])

    async def _job(self, request):
        job = self.jobs.get(request.match_info["job"])
        return web.Response(status=404, text="job not found") if job is None else self._answer(job.spec)

    async def _deregister(self, request):
        job = self.jobs.pop(request.match_info["job"], None)
        if job is not None and job.container is not None:
            await remove_container(self.engine, job.container)
        return self._answer({})

    async def _allocations(self, request):
        async def changed():
            async with self._changed:
                await self._changed.wait_for(lambda: self._index > int(request.query["index"]))

        with suppress(TimeoutError):
            await asyncio.wait_for(changed(), float(request.query["wait"].rstrip("s")))
        job = self.jobs.get(request.match_info["job"])
        if job is None:
            return web.Response(status=404, text="job not found")
        if self.holds_back:
            return self._answer([])
        states = {"slots": {"Events": [{"DisplayMessage": job.event}]}}
        return self._answer([{"ID": job.allocation, "ClientStatus": job.status, "TaskStates": states}])

    async def _evaluations(self, request):
        failed = {"slots": {"DimensionExhausted": {"memory": 1}}} if self.holds_back else None
        return self._answer([{"FailedTGAllocs": failed}])

    async def _exec(self, request):
        jobs = (job for job in self.jobs.values() if job.allocation == request.match_info["allocation"])
        job = next(jobs, None)
        if job is None or job.status != "running":
            return web.Response(status=404, text="Unknown allocation")
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        self._sockets.add(socket)
        try:
            await self._serve(socket, job.container, json.loads(request.query["command"]))
        finally:
            self._sockets.discard(socket)
        return socket

    async def _serve(self, socket, container, command):
        said: asyncio.Queue = asyncio.Queue()
        request = {"AttachStdin": True, "AttachStdout": True, "AttachStderr": True, "Cmd": command}
        exec_id = (await self.engine.call("POST", f"/containers/{container}/exec", request))["Id"]
        stream = await self.engine.attach(
            f"/exec/{exec_id}/start",
            lambda channel, data: said.put_nowait((channel, data)),
            {"Detach": False},
        )
        assert isinstance(stream, HijackedStream)
        speaking = asyncio.create_task(self._speak(socket, said, exec_id))
        try:
            async for message in socket:
                operation = json.loads(message.data).get("stdin") or {}
                if "data" in operation:
                    stream.write(base64.b64decode(operation["data"]))
                    await stream.drain()
                if operation.get("close"):
                    stream._transport.write_eof()
        finally:
            speaking.cancel()
            await asyncio.wait({speaking})
            stream.close()

    async def _speak(self, socket, said, exec_id):
        with suppress(ConnectionError):
            while True:
                channel, data = await said.get()
                if not data:
                    break
                name = "stdout" if channel == STDOUT else "stderr"
                await socket.send_json({name: {"data": base64.b64encode(data).decode()}})
            try:
                code = (await self.engine.call("GET", f"/exec/{exec_id}/json"))["ExitCode"]
            except EngineError:
                socket._req.transport.abort()  # the container is gone
                return
            if code is None:
                socket._req.transport.abort()  # it was cut, and did not end
                return
            await socket.send_json({"exited": True, "result": {"exit_code": code}})
            await socket.close()

    async def close(self) -> None:
        for task in list(self._work):
            task.cancel()
        for container in await self.containers():
            await remove_container(self.engine, container)
        await self.engine.close()


@asynccontextmanager
async def nomad_server():
    """Run an agent on a free port of loopback; its containers are removed at the end."""
    server = NomadServer()
    runner = web.AppRunner(server.app(), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()
        await server.close()
