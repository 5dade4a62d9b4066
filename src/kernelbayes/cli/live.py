"""``filter --follow --serve``: a local page that shows the belief live."""

import json
import math
import threading
from collections import deque
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any

from kernelbayes.cli.errors import InputError

STEPS_KEPT = 300  # steps shown on a page that is opened later: a screen's width
BEAT = 10.0  # seconds between keep-alive messages, and after which a dead stream is closed


class Live(ThreadingHTTPServer):
    """A page and its events on the loopback address; leaving the context ends all streams."""

    daemon_threads = False  # closing waits for the last event

    def __init__(self, port: int) -> None:
        self.seen, self.sent, self.ended = deque[str](maxlen=STEPS_KEPT), 0, False
        self.changed = threading.Condition()
        try:
            super().__init__(("127.0.0.1", port), Handler)
        except (OSError, OverflowError) as error:
            raise InputError(f"cannot serve on port {port}: {error}") from error
        self.hosts = f"127.0.0.1:{self.server_port}", f"localhost:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True).start()

    def publish(self, step: dict[str, Any], end: bool = False) -> None:
        """Send the numbers of one step to all open pages."""
        text = json.dumps({n: v if isinstance(v, str) else _finite(v) for n, v in step.items()})
        with self.changed:
            self.seen.append(f"{'event: end' if end else ': step'}\ndata: {text}\n\n")
            self.sent, self.ended = self.sent + 1, end
            self.changed.notify_all()

    def __exit__(self, *_: object) -> None:
        self.publish({}, end=True)
        self.shutdown()
        self.server_close()


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


class Handler(BaseHTTPRequestHandler):
    """Serve one browser, if its request names this machine."""

    server: Live
    timeout = BEAT

    def do_GET(self) -> None:
        """Send the page or its events; other host names are refused (DNS rebinding)."""
        if self.headers.get("Host") not in self.server.hosts:
            return self.send_error(403)
        kinds = {"/": "text/html; charset=utf-8", "/events": "text/event-stream"}
        if self.path not in kinds:
            return self.send_error(404)
        self.send_response(200)
        self.send_header("Content-Type", kinds[self.path])
        self.end_headers()
        with suppress(OSError):  # the browser may disconnect
            if self.path == "/events":
                return self._events(self.server)
            self.wfile.write((files("kernelbayes.report") / "live.html").read_bytes())
        return None

    def _events(self, live: Live) -> None:
        at, ended = 0, False
        while not ended:
            with live.changed:
                if at == live.sent:
                    live.changed.wait(BEAT)
                new = list(live.seen)[max(0, len(live.seen) - (live.sent - at)) :]
                at, ended = live.sent, live.ended
            self.wfile.write(("".join(new) or ": still here\n\n").encode())

    def log_message(self, *_: object) -> None:
        """Log nothing: standard error is for warnings."""
