"""The routes of Atropos 0.4, for environments and trainers written for it.

Same paths, fields and answers over the native queue. Where they differ, and why:

- Batches leave oldest first, not newest first. A group of odd size waits in the queue, on the disk, for
  others that make the batch's size exact; none is held in memory as `buffered`.
- Malformed pushes are answered with 4xx and a `detail`; Atropos queues token rows without scores.
- A full queue answers 503, which Atropos' client tries again; it drops what is answered with 4xx.
- An environment that was silent for the heartbeat time holds up no batch with its minimum share.
- `current_step` grows when a batch is sent, not when it is put together. A trainer has no way to acknowledge
  on this wire, so a batch counts as trained on once it is sent.
- A trainer that registers again replaces the one before; after a restart Atropos keeps the old sizes.
- `GET /reset_data` needs the operator's leave, and there are no CORS headers: a web page could do both.
- `uuid` has 63 bits, which every JSON reader can hold.
"""

import asyncio
import gzip
import uuid
from collections.abc import Sequence

import msgspec
from aiohttp import web

from rollouts.api.batching import choose
from rollouts.api.group_store import NewGroup, QueuedGroup
from rollouts.api.legacy_wire import ScoredData, check_scored_data, to_legacy
from rollouts.api.native_routes import json_answer, known_environment, push_to
from rollouts.api.service import Service
from rollouts.api.wire import Count, Name, Share, Size, Weight

STATE = "legacy_trainer"
LEASE_S = 60.0
MIN_ENV_WEIGHT = 0.01
"""Least `env_weight` an environment is told, so that none stops sampling."""
COMPRESS_FROM_BYTES = 1024

_one = msgspec.json.Decoder(ScoredData)
_many = msgspec.json.Decoder(list[ScoredData])


class TrainerRegistration(msgspec.Struct):
    """Body of `/register`."""

    wandb_group: str
    wandb_project: str
    batch_size: Size
    max_token_len: int
    checkpoint_dir: str
    save_checkpoint_interval: int
    starting_step: int
    num_steps: int


class EnvRegistration(msgspec.Struct):
    """Body of `/register-env`."""

    max_token_length: Count
    desired_name: Name
    weight: Weight
    group_size: Size
    min_batch_allocation: Share | None = None


class EnvId(msgspec.Struct):
    """Body of the routes that name an environment."""

    env_id: int


class Trainer(msgspec.Struct):
    """What is remembered of the trainer."""

    registration: TrainerRegistration
    step: int
    started: bool = False
    """It has asked for a batch; environments wait for that."""


class LegacyRoutes:
    """Handlers over a service."""

    def __init__(self, service: Service, allow_reset: bool):
        self._service = service
        self._allow_reset = allow_reset
        self._latest: bytes | None = None
        self._changing_trainer = asyncio.Lock()

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.get("/", self.root),
            web.post("/register", self.register),
            web.post("/register-env", self.register_env),
            web.post("/disconnect-env", self.disconnect_env),
            web.get("/wandb_info", self.wandb_info),
            web.get("/info", self.info),
            web.get("/batch", self.batch),
            web.get("/latest_example", self.latest_example),
            web.post("/scored_data", self.scored_data),
            web.post("/scored_data_list", self.scored_data_list),
            web.get("/status", self.status),
            web.get("/status-env", self.status_env),
            web.get("/reset_data", self.reset_data),
        ]

    async def root(self, request: web.Request) -> web.Response:
        """Say what this is."""
        return json_answer({"message": "Lachesis rollout API"})

    async def register(self, request: web.Request) -> web.Response:
        """Register the trainer; a later registration replaces an earlier one."""
        registration = msgspec.json.decode(await request.read(), type=TrainerRegistration)
        async with self._changing_trainer:
            before = await self._trainer()
            started = before is not None and before.started
            await self._keep(Trainer(registration, registration.starting_step, started))
        return json_answer({"uuid": uuid.uuid4().int >> 65})

    async def register_env(self, request: web.Request) -> web.Response:
        """Register an environment, once the trainer has asked for its first batch."""
        wanted = msgspec.json.decode(await request.read(), type=EnvRegistration)
        trainer = await self._trainer()
        if trainer is None or not trainer.started:
            return json_answer({"status": "wait for trainer to start"})
        environment = await self._service.registry.register(
            wanted.desired_name,
            instance=None,
            weight=wanted.weight,
            min_allocation=wanted.min_batch_allocation,
            group_size=wanted.group_size,
            max_token_length=wanted.max_token_length,
        )
        return json_answer(
            {
                "status": "success",
                "env_id": environment.env_id,
                "wandb_name": environment.unique_name,
                "checkpoint_dir": trainer.registration.checkpoint_dir,
                "starting_step": trainer.step,
                "checkpoint_interval": trainer.registration.save_checkpoint_interval,
                "num_steps": trainer.registration.num_steps,
            }
        )

    async def disconnect_env(self, request: web.Request) -> web.Response:
        """Note that an environment has left."""
        env_id = msgspec.json.decode(await request.read(), type=EnvId).env_id
        if await self._service.registry.disconnect(env_id):
            return json_answer({"status": "success"})
        return json_answer({"status": "failure", "error": f"no environment {env_id} is registered"})

    async def wandb_info(self, request: web.Request) -> web.Response:
        """Tell group and project."""
        trainer = await self._trainer()
        if trainer is None:
            return json_answer({"group": None, "project": None})
        registration = trainer.registration
        return json_answer({"group": registration.wandb_group, "project": registration.wandb_project})

    async def info(self, request: web.Request) -> web.Response:
        """Tell the trainer's sizes."""
        trainer = await self._trainer()
        if trainer is None:
            return json_answer({"batch_size": -1, "max_token_len": -1})
        registration = trainer.registration
        return json_answer(
            {"batch_size": registration.batch_size, "max_token_len": registration.max_token_len}
        )

    async def batch(self, request: web.Request) -> web.Response:
        """Give the trainer exactly its batch size in sequences, or null."""
        async with self._changing_trainer:
            return await self._batch(request)

    async def _batch(self, request: web.Request) -> web.Response:
        trainer = await self._trainer()
        if trainer is None:
            message = "Trainer not registered. Call /register first."
            return json_answer({"status": "error", "message": message, "batch": []})
        size = self._service.batch_rollouts = trainer.registration.batch_size

        def take(waiting: Sequence[QueuedGroup]) -> list[QueuedGroup] | None:
            return choose(waiting, size, lambda group: group.rollouts, self._service.registry.minimums())

        queue = self._service.queue
        lease = await queue.lease(f"legacy-{uuid.uuid4()}", take, LEASE_S)
        if lease is None:
            if not trainer.started:
                await self._keep(Trainer(trainer.registration, trainer.step, started=True))
            return json_answer({"batch": None})
        groups: list[bytes] = []
        for group, body in zip(lease.groups, await queue.bodies(lease), strict=True):
            if group.form == "native":
                body, left_out = to_legacy(body, group.env_id)
                queue.counts.legacy_rows_left_out += left_out
            groups.append(body)
        await queue.ack(lease.lease_id)
        await self._keep(Trainer(trainer.registration, trainer.step + 1, started=True))
        await self._service.publish(trainer.step + 1, 0.0)
        return await _answer_with(request, b'{"batch":[' + b",".join(groups) + b"]}")

    async def latest_example(self, request: web.Request) -> web.Response:
        """Show the group that was pushed last on this wire."""
        empty = ScoredData([], [], [], advantages=[], ref_logprobs=[], inference_logprobs=[], messages=[])
        return await _answer_with(request, self._latest or msgspec.json.encode(empty))

    async def scored_data(self, request: web.Request) -> web.Response:
        """Queue a group."""
        data = _one.decode(await request.read())
        await self._push([data])
        return json_answer({"status": "received"})

    async def scored_data_list(self, request: web.Request) -> web.Response:
        """Queue several groups; none where one is malformed."""
        data = _many.decode(await request.read())
        await self._push(data)
        return json_answer({"status": "received", "groups_processed": len(data)})

    async def status(self, request: web.Request) -> web.Response:
        """Tell step and queue length."""
        trainer = await self._trainer()
        waiting = len(self._service.queue.waiting)
        return json_answer({"current_step": trainer.step if trainer else 0, "queue_size": waiting})

    async def status_env(self, request: web.Request) -> web.Response:
        """Tell an environment how much of the queue is its own, and its weight."""
        env_id = msgspec.json.decode(await request.read(), type=EnvId).env_id
        environment = known_environment(self._service, env_id)
        registry, waiting = self._service.registry, self._service.queue.waiting
        trainer = await self._trainer()
        sequences: dict[int | None, int] = {}
        for group in waiting:
            sequences[group.env_id] = sequences.get(group.env_id, 0) + group.rollouts
        batch_size = trainer.registration.batch_size if trainer else 0
        minimums = registry.minimums()
        own = sequences.pop(env_id, 0)
        others = sum(
            max(0, n - int(batch_size * minimums.get(e, 0.0))) for e, n in sequences.items() if e is not None
        )
        alive = registry.alive()
        total = sum(e.max_token_length * e.weight for e in alive)
        weight = environment.max_token_length * environment.weight / total if total else 1.0
        group_size = max([environment.group_size, *(g.rollouts for g in waiting if g.env_id == env_id)])
        return json_answer(
            {
                "current_step": trainer.step if trainer else 0,
                "queue_size": (own + others) // group_size,
                "unallocated_fraction": 1.0 - min(sum(minimums.values()), 1.0),
                "self_queue_size": own // group_size,
                "max_group_size": max((group.rollouts for group in waiting), default=1),
                "env_weight": max(MIN_ENV_WEIGHT, weight),
            }
        )

    async def reset_data(self, request: web.Request) -> web.Response:
        """Empty the queue and forget trainer and environments, where the server was started to allow it."""
        if not self._allow_reset:
            raise web.HTTPForbidden(
                text="reset_data deletes queued groups; start the server with --allow_reset true"
            )
        await self._service.queue.clear()
        await self._service.registry.clear()
        await self._service.publish(0, 0.0)
        await self._keep(None)
        self._latest = None
        return web.Response(text="Reset successful")

    async def _push(self, groups: list[ScoredData]) -> None:
        for data in groups:
            check_scored_data(data)
            if data.env_id is not None:
                known_environment(self._service, data.env_id)
        if self._service.queue.free < len(groups):
            raise web.HTTPServiceUnavailable(text="the queue is full", headers={"Retry-After": "1"})
        for data in groups:
            body = msgspec.json.encode(data)
            group = NewGroup(
                key=f"legacy/{uuid.uuid4()}",
                env_id=data.env_id,
                form="legacy",
                rollouts=len(data.tokens),
                policy_version=self._service.policy.version,
                body=body,
            )
            await push_to(self._service.queue, group)
            self._latest = body

    async def _trainer(self) -> Trainer | None:
        saved = await self._service.store.get_state(STATE)
        return msgspec.json.decode(saved, type=Trainer | None) if saved else None

    async def _keep(self, trainer: Trainer | None) -> None:
        await self._service.store.put_state(STATE, msgspec.json.encode(trainer))


async def _answer_with(request: web.Request, body: bytes) -> web.Response:
    """Send JSON; compressed where the client takes that and sits on another machine."""
    headers = {}
    remote = request.remote not in ("127.0.0.1", "::1")
    if remote and len(body) >= COMPRESS_FROM_BYTES and "gzip" in request.headers.get("Accept-Encoding", ""):
        body = await asyncio.to_thread(gzip.compress, body, 1)
        headers["Content-Encoding"] = "gzip"
    return web.Response(body=body, content_type="application/json", headers=headers)
