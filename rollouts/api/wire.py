"""The native API's messages. Bodies with tokens are MessagePack, the small ones around them JSON.

| route | message → answer |
|---|---|
| `POST /v1/environments` | `Registration` → `Registered`; the same `instance` keeps its id |
| `POST /v1/environments/{env_id}/heartbeat` | `Heartbeat` → `Orders` |
| `DELETE /v1/environments/{env_id}` | the environment leaves |
| `POST /v1/groups?env_id=` | `ScoredGroup`, as MessagePack or JSON → `Pushed`; on the disk by then |
| `POST /v1/batches` | `BatchRequest` → `BatchMessage`, or 204 where none was ready in time |
| `POST /v1/batches/{lease_id}/ack`, `…/release` | → `LeaseAnswer`; 410 where the lease has ended |
| `POST /v1/batches/{lease_id}/extend` | `Extension` → `LeaseAnswer`; 410 likewise |
| `PUT /v1/policy`, `GET /v1/policy` | `PolicyMessage`: the version, and how long its update may take |
| `GET /v1/status`, `GET /metrics`, `GET /healthz` | `Status`; Prometheus text; liveness |
"""

from typing import Annotated

import msgspec

Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Size = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Weight = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Registration(msgspec.Struct, forbid_unknown_fields=True):
    """An environment that wants to push."""

    name: Name
    instance: Name | None = None
    weight: Weight = 1.0
    min_allocation: Share | None = None
    group_size: Size = 1
    max_token_length: Count = 0


class Registered(msgspec.Struct):
    """The answer to a registration."""

    env_id: int
    name: str


class Heartbeat(msgspec.Struct, forbid_unknown_fields=True):
    """A sign of life."""

    in_flight: Count = 0
    """Groups being rolled out."""


class Orders(msgspec.Struct):
    """What the server wants of an environment."""

    policy_version: int
    updating: bool
    """Weights are being changed: make no new model calls."""
    room: int
    """Groups the environment may have in flight."""
    heartbeat_s: float
    """How often the server wants a sign of life."""


class Pushed(msgspec.Struct):
    """The answer to a push."""

    accepted: bool
    """False where the key was pushed before; the group is queued, or was, all the same."""


class BatchRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What a trainer wants."""

    lease_id: Name
    """Chosen by the trainer; asking again with the same id gives the same batch."""
    groups: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    lease_s: Seconds = 600.0
    wait_s: Seconds = 0.0
    """How long to wait for a whole batch."""


class Delivery(msgspec.Struct):
    """One group of a batch."""

    group: msgspec.Raw
    """A ``ScoredGroup``."""
    deliveries: int
    """1 for the first time; more where an earlier lease was not acknowledged."""
    policy_version: int
    """The group's own, or where it has none the one at the time of its push."""


class BatchMessage(msgspec.Struct):
    """A batch; its groups are the trainer's until the lease ends."""

    lease_id: str
    lease_s: float
    """What is left of the lease."""
    groups: list[Delivery]


class Extension(msgspec.Struct, forbid_unknown_fields=True):
    """More time for a lease."""

    lease_s: Seconds


class LeaseAnswer(msgspec.Struct):
    """What became of a lease."""

    groups: int


class PolicyMessage(msgspec.Struct, forbid_unknown_fields=True):
    """The trainer's policy."""

    version: Count
    updating_s: Seconds = 0.0
    """Most seconds the update takes; 0 where the new weights are in place."""


class Status(msgspec.Struct):
    """The queue at a glance."""

    waiting: int
    leased: int
    bytes: int
    policy_version: int
    updating: bool
    environments: int
    """Environments that are alive."""
    delivered: int
    acked: int
