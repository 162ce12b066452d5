"""The native routes (see ``wire``)."""

import asyncio
from typing import TypeVar

import msgspec
from aiohttp import web

from rollouts.api.group_queue import GroupQueue, Lease, QueueFull
from rollouts.api.group_store import NewGroup
from rollouts.api.legacy_wire import to_native
from rollouts.api.registry import Environment
from rollouts.api.scored_group import BadGroup, ScoredGroup, check_group
from rollouts.api.service import Service
from rollouts.api.wire import (
    BatchMessage,
    BatchRequest,
    Delivery,
    Extension,
    Heartbeat,
    LeaseAnswer,
    Orders,
    PolicyMessage,
    Pushed,
    Registered,
    Registration,
    Status,
)

T = TypeVar("T")

MSGPACK = "application/msgpack"

_groups_in_msgpack = msgspec.msgpack.Decoder(ScoredGroup)
_groups_in_json = msgspec.json.Decoder(ScoredGroup)


class NativeRoutes:
    """Handlers over a service."""

    def __init__(self, service: Service):
        self._service = service

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.post("/v1/environments", self.register),
            web.post("/v1/environments/{env_id}/heartbeat", self.heartbeat),
            web.delete("/v1/environments/{env_id}", self.leave),
            web.post("/v1/groups", self.push),
            web.post("/v1/batches", self.lease),
            web.post("/v1/batches/{lease_id}/ack", self.ack),
            web.post("/v1/batches/{lease_id}/release", self.release),
            web.post("/v1/batches/{lease_id}/extend", self.extend),
            web.put("/v1/policy", self.publish),
            web.get("/v1/policy", self.policy),
            web.get("/v1/status", self.status),
        ]

    async def register(self, request: web.Request) -> web.Response:
        """Register an environment."""
        wanted = await _read(request, Registration)
        environment = await self._service.registry.register(
            wanted.name,
            instance=wanted.instance,
            weight=wanted.weight,
            min_allocation=wanted.min_allocation,
            group_size=wanted.group_size,
            max_token_length=wanted.max_token_length,
        )
        return json_answer(Registered(environment.env_id, environment.unique_name))

    async def heartbeat(self, request: web.Request) -> web.Response:
        """Note a sign of life and answer with orders."""
        environment = known_environment(self._service, request.match_info["env_id"])
        environment.in_flight = (await _read(request, Heartbeat)).in_flight
        service = self._service
        return json_answer(
            Orders(
                policy_version=service.policy.version,
                updating=service.policy.updating,
                room=service.room(environment),
                heartbeat_s=service.limits.heartbeat_timeout_s / 4,
            )
        )

    async def leave(self, request: web.Request) -> web.Response:
        """Note that an environment has left."""
        environment = known_environment(self._service, request.match_info["env_id"])
        await self._service.registry.disconnect(environment.env_id)
        return web.Response(status=204)

    async def push(self, request: web.Request) -> web.Response:
        """Queue a group."""
        environment = known_environment(self._service, request.query.get("env_id", ""))
        group, body = _decoded(await request.read(), request.content_type)
        check_group(group)
        version = self._service.policy.version if group.policy_version is None else group.policy_version
        accepted = await push_to(
            self._service.queue,
            NewGroup(
                key=group.key,
                env_id=environment.env_id,
                form="native",
                rollouts=len(group.rollouts),
                policy_version=version,
                body=body,
            ),
        )
        return json_answer(Pushed(accepted))

    async def lease(self, request: web.Request) -> web.Response:
        """Hand out a batch as soon as there is one, within the time the trainer waits."""
        wanted = await _read(request, BatchRequest)
        service = self._service
        if wanted.groups > (most := service.limits.queue.max_groups):
            raise web.HTTPUnprocessableEntity(text=f"groups: the queue never holds more than {most}")
        ends = asyncio.get_running_loop().time() + wanted.wait_s
        while not service.draining:
            if request.transport is None or request.transport.is_closing():
                break  # nobody would get the batch
            changed = asyncio.ensure_future(service.queue.changed())
            try:
                lease = await service.lease_groups(wanted.lease_id, wanted.groups, wanted.lease_s)
                if lease is not None:
                    return await self._batch(lease)
                left = ends - asyncio.get_running_loop().time()
                if left <= 0:
                    break
                await asyncio.wait([changed], timeout=min(left, 1.0))
            finally:
                changed.cancel()
        return web.Response(status=204)

    async def ack(self, request: web.Request) -> web.Response:
        """Take a batch out for good."""
        return _lease_answer(await self._service.queue.ack(request.match_info["lease_id"]))

    async def release(self, request: web.Request) -> web.Response:
        """Give a batch back."""
        return _lease_answer(await self._service.queue.release(request.match_info["lease_id"]))

    async def extend(self, request: web.Request) -> web.Response:
        """Keep a batch for longer."""
        lease_s = (await _read(request, Extension)).lease_s
        return _lease_answer(await self._service.queue.extend(request.match_info["lease_id"], lease_s))

    async def publish(self, request: web.Request) -> web.Response:
        """Set the policy version."""
        message = await _read(request, PolicyMessage)
        await self._service.publish(message.version, message.updating_s)
        return await self.policy(request)

    async def policy(self, request: web.Request) -> web.Response:
        """Tell the policy version."""
        policy = self._service.policy
        return json_answer({"version": policy.version, "updating": policy.updating})

    async def status(self, request: web.Request) -> web.Response:
        """Tell how the queue is."""
        service = self._service
        return json_answer(
            Status(
                waiting=len(service.queue.waiting),
                leased=service.queue.leased,
                bytes=service.queue.size_bytes,
                policy_version=service.policy.version,
                updating=service.policy.updating,
                environments=len(service.registry.alive()),
                delivered=service.queue.counts.delivered,
                acked=service.queue.counts.acked,
            )
        )

    async def _batch(self, lease: Lease) -> web.Response:
        queue = self._service.queue
        deliveries: list[Delivery] = []
        for group, body in zip(lease.groups, await queue.bodies(lease), strict=True):
            native = body if group.form == "native" else to_native(body, group)
            deliveries.append(Delivery(msgspec.Raw(native), group.deliveries, group.policy_version))
        message = BatchMessage(lease.lease_id, queue.time_left(lease), deliveries)
        return web.Response(body=msgspec.msgpack.encode(message), content_type=MSGPACK)


def known_environment(service: Service, env_id: str | int) -> Environment:
    """Return a registered environment and note that it is alive.

    Raises:
        HTTPNotFound: There is none with this id.
    """
    try:
        environment = service.registry.get(int(env_id))
    except ValueError:
        environment = None
    if environment is None:
        raise web.HTTPNotFound(text=f"env_id: no environment {env_id!r} is registered; register first")
    service.registry.seen(environment)
    return environment


def _decoded(body: bytes, content_type: str) -> tuple[ScoredGroup, bytes]:
    """Return a pushed group, and its body as MessagePack."""
    if content_type != "application/json":
        return _groups_in_msgpack.decode(body), body
    group = _groups_in_json.decode(body)
    try:
        return group, msgspec.msgpack.encode(group)
    except OverflowError as error:
        raise BadGroup("an integer has more than 64 bits") from error


async def push_to(queue: GroupQueue, group: NewGroup) -> bool:
    """Push; a full queue is told to the environment, which tries again."""
    try:
        return await queue.push(group)
    except QueueFull as error:
        raise web.HTTPTooManyRequests(text=str(error), headers={"Retry-After": "1"}) from error


def json_answer(message: object, status: int = 200) -> web.Response:
    """Encode a small answer."""
    return web.Response(body=msgspec.json.encode(message), status=status, content_type="application/json")


def _lease_answer(result: int | bool) -> web.Response:
    if not result:
        raise web.HTTPGone(text="the lease has ended; its groups were or will be handed out again")
    return json_answer(LeaseAnswer(int(result)))


async def _read(request: web.Request, message: type[T]) -> T:
    return msgspec.json.decode(await request.read() or b"{}", type=message)
