"""Worker processes for calls that may raise, hang or kill their process.

A worker that dies, or takes longer than the timeout, costs the one call that it was at; it is
replaced, and the calls it was still to make are made elsewhere.
"""

import pickle
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any, Protocol, Self

from kernelbayes.likelihood_free.running.forkserver import Child, packed
from kernelbayes.likelihood_free.running.journal import undisturbed

# Calls sent to a worker at a time: about this much work, far above what sending costs
# (milliseconds), and at most so many calls, which are made again if the worker dies.
TASK_SECONDS, MOST_CALLS = 0.5, 1000


class Task(Protocol):
    """A call to make, of ``function(theta, seed)``; any object with these two arguments."""

    theta: Any
    seed: Any


@dataclass(frozen=True)
class Lost:
    """A call without an answer, and why; ``trace`` is the traceback if it raised."""

    reason: str
    trace: str = ""


@dataclass(eq=False)
class _Worker:
    child: Child
    version: int = 0  # of the function that it has
    ready: bool = False  # has it got the function?
    since: float = 0.0  # when the present call began
    tasks: deque[Any] = field(default_factory=deque)


class Pool:
    """At most ``n_jobs`` workers (-1 for one on each core), started when there is work for them."""

    def __init__(self, n_jobs: int) -> None:
        from joblib import effective_n_jobs

        self._most: int = effective_n_jobs(n_jobs)
        self._workers: list[_Worker] = []
        self._again: deque[Any] = deque()  # calls of workers that are gone
        self._retried: set[int] = set()
        self._function, self._version = b"", 0
        self._each = TASK_SECONDS  # seconds of a call, as far as known

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with undisturbed():
            for worker in self._workers:
                worker.child.kill()
            self._workers.clear()

    def run(
        self, function: Callable[..., Any], take: Callable[[], Any], timeout: float | None = None
    ) -> Iterator[tuple[Any, Any]]:
        """Yield each task and what ``function`` makes of it, or Lost, in the order of completion.

        ``take()`` gives the next task, or None if there is none at present: it is asked again
        after every answer.
        """
        try:
            self._function = pickle.dumps(("function", packed(function)))
        except Exception as error:
            raise TypeError(_UNSENDABLE.format(f"{type(error).__name__}: {error}")) from error
        self._version += 1
        while True:
            self._assign(take)
            busy = {worker.child.pipe: worker for worker in self._workers if worker.tasks}
            if not busy:
                return
            for pipe in wait(list(busy), self._seconds_left(busy.values(), timeout)):
                yield from self._answers(busy[pipe])
            for worker in busy.values():
                if worker in self._workers and self._late(worker, timeout):
                    task = worker.tasks.popleft()
                    self._remove(worker)
                    yield task, Lost(f"no answer within the timeout of {timeout:g} s")

    def _assign(self, take: Callable[[], Any]) -> None:
        """Give every worker without work something to do."""
        idle = deque(worker for worker in self._workers if not worker.tasks)
        while idle or len(self._workers) < self._most:
            size = min(max(1, int(TASK_SECONDS / self._each)), MOST_CALLS)
            tasks: deque[Any] = deque()
            while len(tasks) < size:
                task = self._again.popleft() if self._again else take()
                if task is None:
                    break
                tasks.append(task)
            if not tasks:
                return
            if idle:
                worker = idle.popleft()
            else:
                worker = _Worker(Child(_serve))
                self._workers.append(worker)
            worker.tasks, worker.since = tasks, time.monotonic()
            try:
                if worker.version < self._version:
                    worker.version, worker.ready = self._version, False
                    worker.child.pipe.send_bytes(self._function)
                calls = [(task.theta, task.seed) for task in tasks]
                worker.child.pipe.send_bytes(pickle.dumps(calls))
            except OSError:  # it died while it was idle: found out when its answer is read
                continue

    def _answers(self, worker: _Worker) -> Iterator[tuple[Any, Any]]:
        """Read what a worker has to say."""
        while worker.tasks:
            try:
                if not worker.child.pipe.poll():
                    return
                kind, answer = worker.child.pipe.recv()
            except (EOFError, OSError):
                yield from self._died(worker)
                return
            now = time.monotonic()
            if kind == "broken":
                raise TypeError(_UNSENDABLE.format(answer))
            if kind == "ready":
                worker.ready, worker.since = True, now
                continue
            self._each = max(0.5 * (self._each + now - worker.since), 1e-6)
            worker.since = now
            yield worker.tasks.popleft(), answer

    def _died(self, worker: _Worker) -> Iterator[tuple[Any, Any]]:
        task = worker.tasks[0]
        code = worker.child.exit_code()
        self._remove(worker)
        if not worker.ready:
            raise RuntimeError(
                f"a worker process ended before it had the simulator (exit code {code}); use "
                "n_jobs=1, or see above for its own message"
            )
        by_signal = code is None or code < 0
        if by_signal and id(task) not in self._retried:
            self._retried.add(id(task))  # perhaps somebody else killed it: once more
            return
        self._again.popleft()
        known = {-number: number.name for number in signal.Signals}
        how = f"killed by {known.get(code or 0, 'a signal')}" if by_signal else f"exit code {code}"
        yield task, Lost(f"its process died ({how})")

    def _remove(self, worker: _Worker) -> None:
        """End a worker; what it had not done is done elsewhere."""
        self._workers.remove(worker)
        self._again.extendleft(reversed(worker.tasks))
        worker.child.kill()

    def _late(self, worker: _Worker, timeout: float | None) -> bool:
        if timeout is None or not worker.ready or not worker.tasks:
            return False
        return time.monotonic() - worker.since > timeout and not worker.child.pipe.poll()

    def _seconds_left(self, busy: Any, timeout: float | None) -> float | None:
        """Seconds until the first of the workers could be late."""
        if timeout is None:
            return None
        begun = [worker.since for worker in busy if worker.ready]
        return max(0.0, min(begun) + timeout - time.monotonic()) + 1e-3 if begun else None


_UNSENDABLE = (
    "the simulator cannot be sent to another process ({}); define it in a module, without open "
    "files, locks or connections, or use n_jobs=1 and no timeout"
)


def _serve(pipe: Any) -> None:
    """Be a worker: receive a function, then lists of calls; answer each call."""
    function: Any = None
    while True:
        try:
            message = pickle.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        if isinstance(message, tuple):
            try:
                function = pickle.loads(message[1])
                pipe.send(("ready", None))
            except Exception as error:
                pipe.send(("broken", f"{type(error).__name__}: {error}"))
            continue
        for theta, seed in message:
            try:
                answer = function(theta, seed)
            except Exception as error:
                answer = Lost(f"{type(error).__name__}: {error}", traceback.format_exc())
            try:
                pipe.send(("answer", answer))
            except OSError:  # the parent is gone
                return
