"""Start worker processes quickly and safely.

Importing this library takes a second or two, and copies (forks) of a process with threads can
hang. So one process is started per session, the fork server: it has imported the library, runs
nothing else, and is copied for each worker within milliseconds. (That of ``multiprocessing`` would
run the user's script again in each worker.) Without ``os.fork`` each worker is a new process.

Workers have a process group of their own: Ctrl-C reaches the parent alone, and a worker is killed
together with what it started. A worker whose parent is gone ends itself.
"""

import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import current_process, reduction
from multiprocessing.connection import Connection
from typing import Any

from kernelbayes.likelihood_free.running.journal import undisturbed

Serve = Callable[[Any], None]  # what a worker does with its end
WATCH_SECONDS = 1.0  # how often a process looks whether its parent is still there
EXIT_SECONDS = 1.0  # a process closes its pipe a moment before it has an exit code


class Child:
    """A worker process that serves at the other end of ``pipe``."""

    def __init__(self, serve: Serve) -> None:
        context = _context()
        self.pipe, its = context.Pipe()
        self._server: _ForkServer | None = None
        self._process: Any = None
        with undisturbed():
            if hasattr(os, "fork"):
                self._server = _fork_server()
                self._pid = self._server.start(packed(serve), its)
            else:
                self._process = context.Process(target=_serve, args=(serve, its), daemon=True)
                self._process.start()
        its.close()

    def exit_code(self) -> int | None:
        """Code of a process that has ended, or is about to; None if it goes on."""
        if self._server is not None:
            return self._server.exit_code(self._pid)
        self._process.join(EXIT_SECONDS)
        code: int | None = self._process.exitcode
        return code

    def kill(self) -> None:
        """End the process, and what it started."""
        if self._server is None:
            self._process.terminate()
        else:
            for kill in (os.killpg, os.kill):  # before it has a group there is no group to kill
                with suppress(OSError):
                    kill(self._pid, signal.SIGKILL)
            self._server.exit_code(self._pid)
        self.pipe.close()


class _ForkServer:
    def __init__(self) -> None:
        context = _context()
        self.owner = os.getpid()
        self._codes: dict[int, int] = {}
        self._lock = threading.Lock()
        self._pipe, its = context.Pipe()
        threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        environment = {name: os.environ.get(name, "1") for name in threads}
        process = context.Process(target=_run_server, args=(its,), daemon=True, env=environment)
        with _held_back(signal.SIGINT):
            process.start()
        its.close()
        self._process = process

    @property
    def alive(self) -> bool:
        """Whether this process can ask for workers."""
        return self.owner == os.getpid() and self._process.is_alive()

    def start(self, serve: bytes, pipe: Any) -> int:
        """Start a worker that gets this end of a pipe; return its process number."""
        with self._lock:
            self._pipe.send((serve, os.getcwd(), list(sys.path), dict(os.environ)))
            reduction.send_handle(self._pipe, pipe.fileno(), self._process.pid)
            return int(self._pipe.recv())

    def exit_code(self, pid: int) -> int | None:
        """Exit code of a worker that has ended or will within a second."""
        with undisturbed(), self._lock:
            if pid not in self._codes:
                try:
                    self._pipe.send(pid)
                    code = self._pipe.recv()
                except (EOFError, OSError):  # the fork server is gone, and all workers with it
                    return -int(signal.SIGKILL)
                if code is None:
                    return None
                self._codes[pid] = code
            return self._codes[pid]


_known: _ForkServer | None = None


def _fork_server() -> _ForkServer:
    """Fork server of this process, started when it is first needed."""
    global _known
    if current_process().daemon:
        raise RuntimeError(
            "a daemonic process cannot start others; use n_jobs=1 and no timeout, or start this "
            "process with daemon=False"
        )
    if _known is None or not _known.alive:
        _known = _ForkServer()
    return _known


def packed(function: Callable[..., Any]) -> bytes:
    """Pickle a function, lambdas and functions of functions too."""
    from joblib.externals.loky.backend.reduction import dumps

    return bytes(dumps(function))


def _context() -> Any:
    from joblib.externals.loky.backend import get_context

    return get_context("loky")  # new processes that do not run the user's script again


@contextmanager
def _held_back(number: signal.Signals) -> Iterator[None]:
    """Block a signal in this thread, and in processes started meanwhile, which inherit that."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run_server(pipe: Any) -> None:
    """Be the fork server: start workers and report how they ended, as long as there is a parent."""
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.setpgid(0, 0)
    while os.getppid() == parent:
        try:
            if not pipe.poll(WATCH_SECONDS):
                continue
            message = pipe.recv()
            if isinstance(message, int):
                pipe.send(_ended(message))
                continue
            handle = reduction.recv_handle(pipe)
        except (EOFError, OSError):
            return
        pid = os.fork()
        if pid == 0:
            pipe.close()
            _work(Connection(handle), *message)
        os.close(handle)
        pipe.send(pid)


def _ended(pid: int) -> int | None:
    until = time.monotonic() + EXIT_SECONDS
    while time.monotonic() < until:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(1e-3)
    return None


def _work(
    pipe: Any, serve: bytes, folder: str, path: list[str], environment: dict[str, str]
) -> None:
    """Be a worker that was copied from the fork server; never returns."""
    code = 1
    try:
        with suppress(OSError):
            os.chdir(folder)
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(environment)
        # Simulators may start processes of their own.
        current_process()._config["daemon"] = False  # type: ignore[attr-defined]
        _serve(pickle.loads(serve), pipe)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _serve(serve: Serve, pipe: Any) -> None:
    """Be a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "fork"):
        os.setpgid(0, 0)
        threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    serve(pipe)


def _watch(parent: int) -> None:
    """End this process, and what it started, when its parent is gone."""
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os.killpg(0, signal.SIGKILL)
