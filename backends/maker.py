"""What a backend adds to the shared machinery: a way to start one sandbox."""

from abc import ABC, abstractmethod

from backends.link import Sandbox
from backends.resources import Resources
from backends.warden import Warden


class Maker(ABC):
    """Makes sandboxes of one kind."""

    @abstractmethod
    async def check(self) -> None:
        """Tell whether sandboxes can be made here.

        Raises:
            SandboxUnavailable: They can't; the message says why and what to do.
        """

    @abstractmethod
    async def make(self, image: str | None, resources: Resources) -> tuple[Sandbox, Warden]:
        """Start a sandbox and wait until its warden is up.

        Raises:
            SandboxUnavailable: It could not be started.
            ConfigError: There is no such image, or what is asked for can't be bounded.
        """

    async def close(self) -> None:  # noqa: B027 - not every kind holds something
        """Free what `check` and `make` took beside the sandboxes."""
