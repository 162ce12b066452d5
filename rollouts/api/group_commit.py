"""One writer thread for a SQLite database: what arrives while it syncs shares the next transaction.

An fsync takes milliseconds; one for each push would bound the pushes a second, so all that wait are committed
together. A future resolves only once the transaction that holds its work is on the disk. Work that fails is
undone alone: the others of its transaction are committed one by one.
"""

import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], Any]
Job = tuple[Work, Future[Any]]

MOST_PER_COMMIT = 256


class GroupCommit:
    """Runs functions on a connection, many to a transaction, in the order of their submission."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]):
        self._connect = connect
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="group-commit", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Have ``work`` done in the next transaction; the future resolves when that is on the disk."""
        future: Future[T] = Future()
        self._jobs.put((work, future))
        return future

    def stop(self) -> None:
        """Finish all submitted work and end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        connection = self._connect()
        try:
            while jobs := self._next_jobs():
                self._commit(connection, jobs)
        finally:
            connection.close()

    def _next_jobs(self) -> list[Job]:
        """Wait for work, then take all that is there; empty at the end."""
        job = self._jobs.get()
        jobs: list[Job] = []
        while job is not None:
            jobs.append(job)
            if len(jobs) == MOST_PER_COMMIT:
                return jobs
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return jobs
        if jobs:
            self._jobs.put(None)
        return jobs

    def _commit(self, connection: sqlite3.Connection, jobs: list[Job]) -> None:
        try:
            connection.execute("BEGIN IMMEDIATE")
            results = [work(connection) for work, _ in jobs]
            connection.execute("COMMIT")
        except Exception as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if len(jobs) == 1:
                jobs[0][1].set_exception(error)
                return
            for job in jobs:
                self._commit(connection, [job])
            return
        for (_, future), result in zip(jobs, results, strict=True):
            future.set_result(result)
