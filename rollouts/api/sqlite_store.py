"""The embedded store: SQLite with a write-ahead log, synced at every commit.

Bodies have a table of their own, so that leasing a group rewrites some bytes and not its tokens, and go when
the group is done with; its row stays and keeps the key known. SQLite reuses the pages of deleted bodies: the
file grows with the longest queue there was, not with the length of the run.
"""

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from rollouts.api.group_commit import GroupCommit
from rollouts.api.group_store import GroupStore, NewGroup, Outcome, QueuedGroup, StoreUnavailable
from trajectories.errors import ConfigError

T = TypeVar("T")

SCHEMA = """
CREATE TABLE IF NOT EXISTS groups (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    env_id INTEGER,
    form TEXT NOT NULL,
    rollouts INTEGER NOT NULL,
    policy_version INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    deliveries INTEGER NOT NULL DEFAULT 0,
    lease_id TEXT,
    expires_at REAL NOT NULL DEFAULT 0,
    outcome TEXT
);
CREATE INDEX IF NOT EXISTS waiting ON groups (seq) WHERE outcome IS NULL;
CREATE INDEX IF NOT EXISTS leases ON groups (lease_id);
CREATE TABLE IF NOT EXISTS bodies (seq INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value BLOB NOT NULL);
"""

WAL_BYTES_KEPT = 64 * 2**20
"""The log is cut to this size once its pages are in the database."""


class SqliteStore(GroupStore):
    """A store in one file."""

    def __init__(self, path: Path):
        self.path = path.resolve()  # the lock's name must not depend on links
        self._lock: int | None = None
        self._writer = GroupCommit(self._connect)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="group-reader")
        self._reading: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Lock the file and make its tables.

        Raises:
            ConfigError: It can't be written, is no database of ours, or another server has it.
        """
        await asyncio.to_thread(self._open)

    async def close(self) -> None:
        """Commit what was asked for and unlock the file."""
        if self._lock is not None:
            await asyncio.to_thread(self._close)

    async def load(self) -> list[QueuedGroup]:
        """Read the index of the queue."""
        columns = "seq, env_id, form, rollouts, policy_version, bytes, deliveries, lease_id, expires_at"
        query = f"SELECT {columns} FROM groups WHERE outcome IS NULL ORDER BY seq"
        return await self._read(lambda db: [QueuedGroup(*row) for row in db.execute(query)])

    async def append(self, group: NewGroup) -> int | None:
        """Insert index row and body."""

        def insert(db: sqlite3.Connection) -> int | None:
            row = (
                group.key,
                group.env_id,
                group.form,
                group.rollouts,
                group.policy_version,
                len(group.body),
            )
            inserted = db.execute(
                "INSERT INTO groups (key, env_id, form, rollouts, policy_version, bytes) "
                "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING RETURNING seq",
                row,
            ).fetchone()
            if inserted is None:
                query = "SELECT seq FROM groups WHERE key = ? AND outcome IS NULL"
                known = db.execute(query, (group.key,)).fetchone()
                return known[0] if known else None
            db.execute("INSERT INTO bodies VALUES (?, ?)", (inserted[0], group.body))
            return inserted[0]

        return await self._write(insert)

    async def record_lease(self, seqs: Sequence[int], lease_id: str, expires_at: float) -> None:
        """Update the index rows."""
        await self._update(
            "UPDATE groups SET lease_id = ?, expires_at = ?, deliveries = deliveries + 1 WHERE seq = ?",
            [(lease_id, expires_at, seq) for seq in seqs],
        )

    async def move_expiry(self, lease_id: str, seqs: Sequence[int], expires_at: float) -> None:
        """Update the index rows."""
        await self._update(
            "UPDATE groups SET expires_at = ? WHERE seq = ? AND lease_id = ?",
            [(expires_at, seq, lease_id) for seq in seqs],
        )

    async def finish(self, seqs: Sequence[int], outcome: Outcome) -> None:
        """Delete the bodies and mark the index rows."""

        def finish(db: sqlite3.Connection) -> None:
            db.executemany("DELETE FROM bodies WHERE seq = ?", [(seq,) for seq in seqs])
            db.executemany("UPDATE groups SET outcome = ? WHERE seq = ?", [(outcome, seq) for seq in seqs])

        await self._write(finish)

    async def acked(self, lease_id: str) -> int:
        """Count index rows."""
        query = "SELECT count(*) FROM groups WHERE lease_id = ? AND outcome = 'acked'"
        return (await self._read(lambda db: db.execute(query, (lease_id,)).fetchone()))[0]

    async def bodies(self, seqs: Sequence[int]) -> list[bytes | None]:
        """Read the bodies."""

        def read(db: sqlite3.Connection) -> list[bytes | None]:
            query = "SELECT body FROM bodies WHERE seq = ?"
            rows = [db.execute(query, (seq,)).fetchone() for seq in seqs]
            return [row[0] if row else None for row in rows]

        return await self._read(read)

    async def put_state(self, name: str, value: bytes) -> None:
        """Replace the value."""
        await self._update("INSERT OR REPLACE INTO state VALUES (?, ?)", [(name, value)])

    async def get_state(self, name: str) -> bytes | None:
        """Read the value."""
        query = "SELECT value FROM state WHERE name = ?"
        row = await self._read(lambda db: db.execute(query, (name,)).fetchone())
        return row[0] if row else None

    def _open(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            connection = self._connect()
            connection.executescript(SCHEMA)
            connection.close()
            self._reading = self._connect()
        except BlockingIOError as error:
            self._unlock()
            raise ConfigError(f"store: another server has {self.path}") from error
        except (OSError, sqlite3.Error) as error:
            self._unlock()
            raise ConfigError(f"store: cannot use {self.path}: {error}") from error
        self._writer.start()

    def _close(self) -> None:
        self._writer.stop()
        self._reader.shutdown()
        if self._reading is not None:
            self._reading.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _connect(self) -> sqlite3.Connection:
        """Connect with full syncs: in WAL mode anything less may lose the last commits on power loss."""
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
        return connection

    async def _update(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        def update(db: sqlite3.Connection) -> None:
            db.executemany(statement, rows)

        await self._write(update)

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Commit; a caller that is cancelled meanwhile does not undo it."""
        try:
            return await asyncio.shield(asyncio.wrap_future(self._writer.submit(work)))
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self.path}: {error}") from error

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._reading
        assert connection is not None
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reader, work, connection)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self.path}: {error}") from error
