"""A stand-in for Modal: the RPCs of its real protocol that are used here, with real processes behind them.

A sandbox is a bubblewrap container of root's on a file system of its own; what is executed in it joins its
namespaces. One of them is of users, for the kernel counts a user's processes in each apart: what one sandbox
starts takes none of another's limit, as on Modal, where each has a kernel of its own. Output and input are
kept by offset, as Modal's workers do, so that the SDK can resume. Faults are set on the server. Modal's
scheduling and images from registries are not here.
"""

import asyncio
import base64
import contextlib
import json
import os
import signal
import tempfile
import time
import uuid
from collections import defaultdict
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from grpclib import GRPCError, Status
from grpclib.server import Server
from modal_proto import api_grpc, api_pb2, task_command_router_grpc
from modal_proto import task_command_router_pb2 as tcr

from backends.finish import finish
from backends.memory_groups import MemoryGroup, MemoryGroups

KEPT_BYTES = 4 * 2**20
READ_BYTES = 256 * 1024
GONE = api_pb2.GenericResult.GENERIC_STATUS_TERMINATED
DONE = api_pb2.GenericResult.GENERIC_STATUS_SUCCESS

ROOT_UID = 300_000
"""Who is root of a sandbox on the host."""
USERS = f"0 {ROOT_UID} 65536"
"""As the kernel reads it: the first user of a sandbox, who that is on the host, and how many follow."""

JOIN = 'echo 0 >"$1/cgroup.procs"; shift\n'
CONTAINER = f"""
{JOIN}
mount -t tmpfs -o size=128m,nr_inodes=100000,mode=755 tmpfs /mnt
[ -z "$1" ] || cp -a "$1/." /mnt
mkdir -p /mnt/etc /mnt/home /mnt/root /mnt/tmp /mnt/run
printf 'root:x:0:0::/root:/bin/bash\\n' >/mnt/etc/passwd
chown {ROOT_UID}:{ROOT_UID} /mnt /mnt/* /mnt/etc/passwd
shift
exec setpriv --reuid={ROOT_UID} --regid={ROOT_UID} --clear-groups --pdeathsig KILL "$@"
"""


def entrypoint_runs(first):
    """Whether the first process of a container has finished setting it up."""
    with suppress(OSError):
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        return bool(children) and not Path(f"/proc/{children[0]}/cmdline").read_bytes().startswith(b"bwrap")
    return False


class Output:
    """What a process wrote to one channel: the newest part, by offset."""

    def __init__(self):
        self.start = 0
        self.kept = bytearray()
        self.wanted = 0
        self.over = False
        self.changed = asyncio.Condition()

    async def fill(self, stream):
        while data := await stream.read(READ_BYTES):
            async with self.changed:
                self.kept += data
                excess = max(0, min(len(self.kept) - KEPT_BYTES, self.wanted - self.start))
                del self.kept[:excess]
                self.start += excess
                self.changed.notify_all()
                await self.changed.wait_for(lambda: self.start + len(self.kept) - self.wanted < KEPT_BYTES)
        async with self.changed:
            self.over = True
            self.changed.notify_all()

    async def read(self, offset):
        """Return what is there from an offset on; nothing once it is over."""
        async with self.changed:
            self.wanted = offset
            self.changed.notify_all()
            await self.changed.wait_for(lambda: self.over or self.start + len(self.kept) > offset)
            return bytes(self.kept[offset - self.start :][:READ_BYTES])


class Running:
    """A process with its streams."""

    def __init__(self, process):
        self.process = process
        self.outputs = {1: Output(), 2: Output()}
        self.received = 0
        self.work = [
            asyncio.create_task(self.outputs[1].fill(process.stdout)),
            asyncio.create_task(self.outputs[2].fill(process.stderr)),
        ]

    async def write(self, request):
        data = request.data[max(0, self.received - request.offset) :]
        self.received += len(data)
        with suppress(ConnectionError):
            self.process.stdin.write(data)
            await self.process.stdin.drain()
            if request.eof:
                self.process.stdin.close()


@dataclass
class Box:
    """One sandbox."""

    definition: object
    tags: dict
    env: dict
    snapshot: str
    group: MemoryGroup
    id: str = field(default_factory=lambda: f"sb-{uuid.uuid4().hex}")
    task: str = field(default_factory=lambda: f"ta-{uuid.uuid4().hex}V")
    main: Running | None = None
    inner: int = 0
    execs: dict = field(default_factory=dict)
    status: int = 0

    def kill(self):
        """End it, with the child of bubblewrap: while it is being set up, it does not end with its parent."""
        self.status = self.status or GONE
        if self.main is not None and self.main.process.returncode is None:
            for pid in (self.main.process.pid, self.inner):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


class ModalServer:
    """The control plane and its workers."""

    def __init__(self):
        self.boxes: dict[str, Box] = {}
        self.failures: dict[str, list[Status]] = defaultdict(list)
        """By RPC, what its next calls fail with."""
        self.lost_answers: dict[str, int] = defaultdict(int)
        """By RPC, how many of its next calls are carried out without an answer."""
        self.calls: list[str] = []
        self.never_ready = False
        """Whether sandboxes are created but never placed."""
        self.start_s = 0.0
        """How long a sandbox takes to start."""
        self.starting = self.most_starting = 0
        self.created: list[str] = []
        self.tokens: set[str] = set()
        self.accounts: dict[str, int] = defaultdict(int)
        self.closed: set[str] = set()
        """Accounts that may create nothing."""
        self.definitions: list[str] = []
        """Of images, the commands that make them."""
        self.port = self.worker_port = 0
        self.folder = Path()
        self.images: dict[str, str] = {}
        groups = MemoryGroups.here()
        assert groups is not None, "the stand-in needs memory control groups"
        self._groups = groups
        self._placing = asyncio.Lock()
        self._mourning: list[asyncio.Task] = []

    def expire_tokens(self):
        """Make workers refuse every token issued so far."""
        self.tokens.clear()

    def use(self, patch):
        """Make the SDK of this process reach the stand-in."""
        patch.setenv("MODAL_SERVER_URL", f"http://127.0.0.1:{self.port}")
        patch.setenv("MODAL_TOKEN_ID", "ak-test")
        patch.setenv("MODAL_TOKEN_SECRET", "as-test")

    def running(self):
        return [box for box in self.boxes.values() if box.main is not None and not box.status]

    async def create(self, request):
        sources = request.secret_sources
        env = {key: value for source in sources for key, value in source.env.contents.items()}
        if any(source.secret_id for source in sources) or request.definition.secret_ids:
            env["FROM_SECRET"] = "of the account"
        tags = {tag.tag_name: tag.tag_value for tag in request.tags}
        snapshot = self.images.get(request.definition.image_id, "")
        group = self._groups.make(request.definition.resources.memory_mb_max)
        box = Box(request.definition, tags, env, snapshot, group)
        self.boxes[box.id] = box
        self.created.append(box.id)
        if self.never_ready:
            box.task = ""
            return box
        self.starting += 1
        self.most_starting = max(self.most_starting, self.starting)
        try:
            await asyncio.sleep(self.start_s)
            async with self._placing:  # one machine plays many: what starts at once would starve each other
                await finish(self._start(box))
        except asyncio.CancelledError:  # the client is gone
            box.kill()
            raise
        finally:
            self.starting -= 1
        return box

    async def _start(self, box):
        (told, tell), (ready, go) = os.pipe(), os.pipe()
        links = [f"--symlink usr/{name} /{name}" for name in ("bin", "sbin", "lib", "lib64")]
        files = ["--bind /mnt / --ro-bind /usr /usr --ro-bind /etc/alternatives /etc/alternatives", *links]
        own = "--unshare-user --uid 0 --gid 0 --cap-add ALL --unshare-pid --unshare-ipc --unshare-uts"
        network = [] if not box.definition.network_access.network_access_type else ["--unshare-net"]
        command = [
            *("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "sh", "-ec", CONTAINER, "container"),
            *(str(box.group.folder), box.snapshot, "bwrap", *" ".join(files).split(), *own.split(), *network),
            *("--proc", "/proc", "--dev", "/dev", "--hostname", "modal", "--die-with-parent"),
            *("--info-fd", str(tell), "--userns-block-fd", str(ready), "--", *box.definition.entrypoint_args),
        ]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=-1, stdout=-1, stderr=-1, pass_fds=[tell, ready], env=self._env(box)
        )
        os.close(tell)
        os.close(ready)
        loop = asyncio.get_running_loop()
        with os.fdopen(told) as info:
            said = await loop.run_in_executor(None, info.read)
        box.main = Running(process)
        box.inner = json.loads(said)["child-pid"]
        for kind in ("uid", "gid"):
            await loop.run_in_executor(None, Path(f"/proc/{box.inner}/{kind}_map").write_text, USERS)
        os.close(go)
        while not entrypoint_runs(box.inner) and process.returncode is None:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
        self._mourning.append(asyncio.create_task(self._mourn(box)))

    async def _mourn(self, box):
        await box.main.process.wait()
        box.status = box.status or DONE

    async def execute(self, box, request):
        if request.exec_id in box.execs:  # the answer to the first request was lost
            return
        command = [
            *("sh", "-ec", f'{JOIN} exec "$@"', "execute", str(box.group.folder)),
            *("nsenter", "--target", str(box.inner), "--all", "--root", "--wd", *request.command_args),
        ]
        env = {key: value for source in request.secret_sources for key, value in source.env.contents.items()}
        process = await asyncio.create_subprocess_exec(
            *command, stdin=-1, stdout=-1, stderr=-1, env={**self._env(box), **env}
        )
        box.execs[request.exec_id] = Running(process)

    def _env(self, box):
        return {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root", **box.env}

    async def snapshot(self, box):
        image = f"im-{uuid.uuid4().hex[:22]}"
        target = self.folder / image
        source = f"/proc/{box.inner}/root/"
        names = ["workspace", "home", "root", "etc"]
        target.mkdir()
        for name in names:
            if (Path(source) / name).exists():
                copy = await asyncio.create_subprocess_exec("cp", "-a", source + name, str(target))
                await copy.wait()
        self.images[image] = str(target)
        return image

    def token(self):
        body = json.dumps({"exp": int(time.time()) + 20, "id": uuid.uuid4().hex})
        token = f"e30.{base64.urlsafe_b64encode(body.encode()).decode().rstrip('=')}.x"
        self.tokens.add(token)
        return token

    async def close(self):
        for box in self.boxes.values():
            box.kill()
            if box.main is not None:
                await box.main.process.wait()
            for running in [*box.execs.values(), *([box.main] if box.main else [])]:
                with suppress(ProcessLookupError):
                    running.process.kill()
                await running.process.wait()
                await asyncio.wait(running.work, timeout=5)
                running.process._transport.close()
            await box.group.remove()
        self._groups.close()


def _service(base, server, handlers):
    """Make a service whose other RPCs say that they are not implemented."""

    def wrap(name):
        handler = handlers.get(name)

        async def method(self, stream):
            server.calls.append(name)
            if handler is None:
                raise GRPCError(Status.UNIMPLEMENTED, f"{name} is not part of the stand-in")
            if server.failures[name]:
                raise GRPCError(server.failures[name].pop(0), "as the test wants")
            answer = await handler(stream)
            if server.lost_answers[name]:
                server.lost_answers[name] -= 1
                raise GRPCError(Status.UNAVAILABLE, "as the test wants")
            if answer is not None:
                await stream.send_message(answer)

        return method

    return type(base.__name__, (base,), {name: wrap(name) for name in base.__abstractmethods__})()


def _unary(function):
    async def handler(stream):
        return await function(await stream.recv_message(), stream)

    return handler


def control_plane(server: ModalServer):
    def box_of(request):
        if request.sandbox_id not in server.boxes:
            raise GRPCError(Status.NOT_FOUND, "no such sandbox")
        return server.boxes[request.sandbox_id]

    def access(kind):
        return kind(url=f"http://127.0.0.1:{server.worker_port}", jwt=server.token())

    async def hello(request, stream):
        if stream.metadata["x-modal-token-id"] == "unknown":
            raise GRPCError(Status.UNAUTHENTICATED, "Token ID not found")
        return api_pb2.ClientHelloResponse(image_builder_version="2025.06")

    async def app(request, stream):
        return api_pb2.AppGetOrCreateResponse(app_id="ap-" + "1" * 22)

    async def environment(request, stream):
        settings = api_pb2.EnvironmentSettings(image_builder_version="2025.06", webhook_suffix="")
        metadata = api_pb2.EnvironmentMetadata(name="main", settings=settings)
        return api_pb2.EnvironmentGetOrCreateResponse(environment_id="en-1", metadata=metadata)

    async def auth(request, stream):
        return api_pb2.AuthTokenGetResponse(token=server.token())

    async def image(request, stream):
        server.definitions.append("\n".join(request.image.dockerfile_commands))
        return api_pb2.ImageGetOrCreateResponse(
            image_id="im-" + "1" * 22,
            result=api_pb2.GenericResult(status=DONE),
            metadata=api_pb2.ImageMetadata(),
        )

    async def image_from_id(request, stream):
        if request.image_id not in server.images:
            raise GRPCError(Status.NOT_FOUND, "no such image")
        return api_pb2.ImageFromIdResponse(image_id=request.image_id, metadata=api_pb2.ImageMetadata())

    async def secret(request, stream):
        return api_pb2.SecretGetOrCreateResponse(secret_id="st-" + "1" * 22)

    async def create(request, stream):
        account = stream.metadata["x-modal-token-id"]
        if account in server.closed:
            raise GRPCError(Status.PERMISSION_DENIED, "the account is closed")
        box = await server.create(request)
        server.accounts[account] += 1
        reply = api_pb2.SandboxCreateV2Response(sandbox_id=box.id, task_id=box.task)
        if box.task:
            reply.command_router_access.CopyFrom(access(api_pb2.CommandRouterAccess))
        return reply

    async def wait(request, stream):
        box, until = box_of(request), time.monotonic() + request.timeout
        while not box.status and time.monotonic() < until:  # noqa: ASYNC110 - a process says it by ending
            await asyncio.sleep(0.02)
        return api_pb2.SandboxWaitResponse(result=api_pb2.GenericResult(status=box.status))

    async def terminate(request, stream):
        box_of(request).kill()
        return api_pb2.SandboxTerminateResponse()

    async def listed(request, stream):
        if request.before_timestamp:
            return api_pb2.SandboxListResponse()
        wanted = {tag.tag_name: tag.tag_value for tag in request.tags}
        found = [
            box for box in server.boxes.values() if not box.status and wanted.items() <= box.tags.items()
        ]
        return api_pb2.SandboxListResponse(
            sandboxes=[api_pb2.SandboxInfo(id=box.id, created_at=1.0) for box in found]
        )

    async def tags(request, stream):
        pairs = box_of(request).tags.items()
        return api_pb2.SandboxTagsGetResponse(
            tags=[api_pb2.SandboxTag(tag_name=name, tag_value=value) for name, value in pairs]
        )

    async def task(request, stream):
        return api_pb2.SandboxGetTaskIdResponse(task_id=box_of(request).task or None)

    async def router(request, stream):
        return access(api_pb2.SandboxGetCommandRouterAccessResponse)

    return _service(
        api_grpc.ModalClientBase,
        server,
        {
            "ClientHello": _unary(hello),
            "AppGetOrCreate": _unary(app),
            "EnvironmentGetOrCreate": _unary(environment),
            "AuthTokenGet": _unary(auth),
            "ImageGetOrCreate": _unary(image),
            "ImageFromId": _unary(image_from_id),
            "SecretGetOrCreate": _unary(secret),
            "SandboxCreateV2": _unary(create),
            "SandboxWaitV2": _unary(wait),
            "SandboxTerminateV2": _unary(terminate),
            "SandboxListV2": _unary(listed),
            "SandboxTagsGetV2": _unary(tags),
            "SandboxGetTaskIdV2": _unary(task),
            "SandboxGetCommandRouterAccess": _unary(router),
        },
    )


def worker(server: ModalServer):
    def box_of(request, stream):
        if stream.metadata["authorization"].removeprefix("Bearer ") not in server.tokens:
            raise GRPCError(Status.UNAUTHENTICATED, "the token has expired")
        box = next((box for box in server.boxes.values() if box.task == request.task_id), None)
        if box is None or box.status:
            raise GRPCError(Status.NOT_FOUND, "the task has ended")
        return box

    async def start(request, stream):
        await server.execute(box_of(request, stream), request)
        return tcr.TaskExecStartResponse()

    async def write(request, stream):
        await box_of(request, stream).execs[request.exec_id].write(request)
        return tcr.TaskExecStdinWriteResponse()

    async def write_main(request, stream):
        await box_of(request, stream).main.write(request)
        return tcr.SandboxStdinWriteV2Response()

    async def wait(request, stream):
        box = box_of(request, stream)
        code = await box.execs[request.exec_id].process.wait()
        if box.status:
            raise GRPCError(Status.NOT_FOUND, "the task has ended")
        return tcr.TaskExecWaitResponse(code=code) if code >= 0 else tcr.TaskExecWaitResponse(signal=-code)

    async def snapshot(request, stream):
        return tcr.TaskSnapshotFilesystemResponse(image_id=await server.snapshot(box_of(request, stream)))

    async def read(stream):
        request = await stream.recv_message()
        box = box_of(request, stream)
        running, offset = box.execs[request.exec_id], request.offset
        output = running.outputs[
            1 if request.file_descriptor == tcr.TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDOUT else 2
        ]
        while data := await output.read(offset):
            offset += len(data)
            await stream.send_message(tcr.TaskExecStdioReadResponse(data=data))
        if box.status:
            raise GRPCError(Status.NOT_FOUND, "the task has ended")

    return _service(
        task_command_router_grpc.TaskCommandRouterBase,
        server,
        {
            "TaskExecStart": _unary(start),
            "TaskExecStdinWrite": _unary(write),
            "TaskExecStdioRead": read,
            "TaskExecWait": _unary(wait),
            "SandboxStdinWriteV2": _unary(write_main),
            "TaskSnapshotFilesystem": _unary(snapshot),
        },
    )


class Listening(Server):
    """A server that knows its connections, so as to end them."""

    def __init__(self, services):
        super().__init__(services)
        self.protocols = []

    def _protocol_factory(self):
        self.protocols.append(super()._protocol_factory())
        return self.protocols[-1]

    async def end(self):
        self.close()
        for protocol in self.protocols:
            if transport := getattr(getattr(protocol, "connection", None), "_transport", None):
                transport.abort()
        await self.wait_closed()


@asynccontextmanager
async def modal_server():
    """Run the stand-in on two free ports of loopback; whatever still runs is ended with it."""
    server = ModalServer()
    with tempfile.TemporaryDirectory() as folder:
        server.folder = Path(folder)
        async with contextlib.AsyncExitStack() as stack:
            for service, name in ((control_plane(server), "port"), (worker(server), "worker_port")):
                listening = Listening([service])
                await listening.start("127.0.0.1", 0)
                setattr(server, name, listening._server.sockets[0].getsockname()[1])
                stack.push_async_callback(listening.end)
            try:
                yield server
            finally:
                await server.close()
