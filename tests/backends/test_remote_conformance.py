"""The remote backends behave as the contract says. The checks of a kind share what makes its sandboxes."""

from dataclasses import fields

import pytest
import pytest_asyncio

from backends.conformance import CHECKS, GAPS, run_check
from backends.machine import OutputLimits
from backends.maker import Maker
from backends.modal import ModalMaker
from backends.modal_account import ModalLimits
from backends.nomad import NomadMaker
from backends.nomad_job import NomadLimits
from backends.pool import Pool, PoolLimits
from backends.ssh import SshMaker
from backends.ssh_host import SshLimits
from tests.backends.modal_server import modal_server
from tests.backends.nomad_server import nomad_server

SMALL = {"disk_mb": 64, "memory_mb": 1024}


class Shared(Maker):
    """A maker that outlives the pools that use it: most of a remote backend's start is the same each time."""

    def __init__(self, maker):
        self._maker = maker

    async def check(self):
        await self._maker.check()

    async def make(self, image, resources):
        return await self._maker.make(image, resources)


async def conforms(check, maker):
    names = {field.name for field in fields(OutputLimits)}

    def factory(**options):
        output = {name: options.pop(name) for name in names & options.keys()}
        return Pool(Shared(maker), PoolLimits(**options), OutputLimits(**output))

    await run_check(check, factory)


def cases(kind):
    gaps = GAPS[kind]

    def marks(check):
        return [pytest.mark.xfail(reason=gaps[check.name], strict=True)] if check.name in gaps else []

    return [pytest.param(check, marks=marks(check), id=check.name) for check in CHECKS]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ssh(sshd):
    maker = SshMaker(SshLimits(**sshd.options, **SMALL))
    yield maker
    await maker.close()


@pytest.mark.parametrize("check", cases("ssh"))
@pytest.mark.asyncio(loop_scope="module")
async def test_ssh_conforms(check, ssh):
    await conforms(check, ssh)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nomad():
    async with nomad_server() as server:
        limits = {"image": "lachesis-slots", "container_memory_mb": 2048, "slots_per_container": 4}
        maker = NomadMaker(NomadLimits(address=server.url, **limits, **SMALL))
        yield maker
        await maker.close()


@pytest.mark.docker
@pytest.mark.parametrize("check", cases("nomad"))
@pytest.mark.asyncio(loop_scope="module")
async def test_nomad_conforms(check, nomad):
    await conforms(check, nomad)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def modal():
    async with modal_server() as server:
        with pytest.MonkeyPatch.context() as patch:
            server.use(patch)
            maker = ModalMaker(ModalLimits())
            yield maker
            await maker.close()


@pytest.mark.parametrize("check", cases("modal"))
@pytest.mark.asyncio(loop_scope="module")
async def test_modal_conforms(check, modal):
    await conforms(check, modal)
