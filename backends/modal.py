"""Sandboxes on Modal, one slot in each.

Modal's sandbox is the boundary. In it the warden is process 1 of a namespace of its own and commands run as a
user without privileges, so that what holds elsewhere (timeouts, sweeps, a control shell) holds here as well.
"""

import asyncio
from typing import TYPE_CHECKING

from typing_extensions import override

from backends.link import BOOTSTRAP, Receive, Sandbox, record, source
from backends.maker import Maker
from backends.modal_account import ModalAccount, ModalLimits
from backends.modal_process import ModalProcess
from backends.remote import COMMAND, Host, Launch, Lost, RemoteSandbox
from backends.resources import Resources
from backends.warden import Warden
from trajectories.errors import ConfigError, SandboxUnavailable

if TYPE_CHECKING:
    import modal


class ModalHost(Host):
    """One Modal sandbox."""

    def __init__(self, account: ModalAccount, sandbox: "modal.Sandbox", limits: ModalLimits):
        self.address = sandbox.object_id
        self.sandbox = sandbox
        self._account = account
        self._limits = limits
        self._beat = asyncio.create_task(self._keep())

    @override
    async def launch(self, resources: Resources) -> Launch:
        limits = resources.applied_to(self._limits)
        user = f"--reuid={limits.user} --regid={limits.user} --clear-groups"
        return Launch(
            [
                *(
                    "env",
                    "--default-signal",
                    "unshare",
                    "--mount",
                    "--mount-proc",
                    "--pid",
                    "--fork",
                    "--kill-child",
                ),
                *("bash", "--noprofile", "--norc", "-c", source("enclose.sh"), "enclose"),
                *(limits.workspace, str(limits.user)),
                *("bash", "--noprofile", "--norc", "-c", BOOTSTRAP, "sandbox"),
                *(f"-u={limits.processes}", f"-d={limits.memory_mb * 1024}"),
            ],
            depth=1,
            join=f"setpriv {user}",
            workspace=limits.workspace,
        )

    @override
    async def run(self, program: str, receive: Receive, lost: Lost) -> ModalProcess:
        import modal

        try:
            process = await self.sandbox.exec.aio(*COMMAND, text=False)
        except (modal.exception.Error, OSError) as error:
            raise self._account.failure(error) from error
        streams = ModalProcess(process, receive, lost)
        streams.write(record(program))
        return streams

    async def end(self) -> None:
        """Terminate it.

        Raises:
            SandboxDied: Modal did not confirm it in time; it will be tried again.
        """
        self._beat.cancel()
        await self._account.terminate(self.sandbox)

    async def _keep(self) -> None:
        import modal

        while True:
            try:
                self.sandbox.stdin.write(b"\n")
                await self.sandbox.stdin.drain.aio()
            except (modal.exception.Error, OSError, ValueError):
                pass  # it ended, which the warden tells, or the network did, and then the next beat may pass
            await asyncio.sleep(self._limits.lease_s / 4)


class ModalSandbox(RemoteSandbox):
    """A slot's sandbox, which is all of a Modal sandbox."""

    @override
    async def destroy(self) -> None:
        host, process, self._process = self._host, self._process, None
        assert isinstance(host, ModalHost)
        if process is not None:
            process.close()
        await host.end()

    async def snapshot(self) -> str:
        """Keep the file system as an image, and return what `acquire` takes as its name.

        Raises:
            SandboxUnavailable: Modal could not take it.
        """
        import modal

        assert isinstance(self._host, ModalHost)
        try:
            return (await self._host.sandbox.snapshot_filesystem.aio()).object_id
        except modal.exception.Error as error:
            raise SandboxUnavailable(f"no snapshot could be taken: {error}") from error


class ModalMaker(Maker):
    """Makes sandboxes on the account that has the fewest."""

    def __init__(self, limits: ModalLimits):
        try:
            import modal  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                "the modal backend needs the extra: pip install 'lachesis-rl[modal]'"
            ) from error
        self._limits = limits
        starting = asyncio.Semaphore(limits.max_creating)
        self.accounts = [ModalAccount(profile, limits, starting) for profile in limits.profiles or (None,)]

    @override
    async def check(self) -> None:
        await asyncio.gather(*(account.open() for account in self.accounts))

    @override
    async def make(self, image: str | None, resources: Resources) -> tuple[Sandbox, Warden]:
        limits, failures = resources.applied_to(self._limits), list[SandboxUnavailable]()
        try:
            async with asyncio.timeout(limits.start_budget_s):
                for account in sorted(self.accounts, key=lambda account: account.sandboxes):
                    try:
                        return await self._make_on(account, image or limits.image, resources, limits)
                    except SandboxUnavailable as failure:
                        failures.append(failure)
        except TimeoutError as error:
            raise SandboxUnavailable(
                f"no sandbox of Modal's was ready within {limits.start_budget_s:g} s (start_budget_s)"
            ) from error
        raise failures[0]

    @override
    async def close(self) -> None:
        await asyncio.gather(*(account.close() for account in self.accounts))

    async def _make_on(
        self, account: ModalAccount, image: str, resources: Resources, limits: ModalLimits
    ) -> tuple[Sandbox, Warden]:
        sandbox, warden = await account.create(image, limits), Warden()
        host = ModalHost(account, sandbox, limits)
        return await ModalSandbox.start(host, warden, resources, limits.start_budget_s), warden
