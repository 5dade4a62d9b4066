"""The live page: what it sends, whom it refuses, and that it ends."""

import http.client
import json
import subprocess
import sys
import threading

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.cli import main
from kernelbayes.cli.errors import InputError
from kernelbayes.cli.live import STEPS_KEPT, Live

SECONDS = 20.0  # for a test that hangs; nothing here takes one


def get(port, path="/", host=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{port}"})
    return connection.getresponse()


def events(response):
    """Numbers of the steps of a stream until its end."""
    found = []
    for line in response:
        if line.startswith(b"event: end"):
            return found
        if line.startswith(b"data: "):
            found.append(json.loads(line[6:]))
    raise AssertionError("the stream ended without saying so")


def test_those_who_look_get_every_step_and_the_end():
    with Live(0) as server:
        server.publish({"t": 1, "z_mean": np.float64(0.5)})
        early = get(server.server_port, "/events")
        server.publish({"t": 2, "z_mean": 0.75})
        late = get(server.server_port, "/events")
    for response in (early, late):
        assert response.headers["Content-Type"] == "text/event-stream"
        assert events(response) == [{"t": 1.0, "z_mean": 0.5}, {"t": 2.0, "z_mean": 0.75}]


def test_what_is_not_known_is_null():
    with Live(0) as server:
        server.publish({"t": 1, "support": float("nan"), "ess": np.inf})
        response = get(server.server_port, "/events")
    assert events(response) == [{"t": 1.0, "support": None, "ess": None}]


def test_only_this_machine_is_answered():
    with Live(0) as server:
        assert server.server_address[0] == "127.0.0.1"
        for host in (
            "evil.example",
            f"evil.example:{server.server_port}",
            "127.0.0.1",
            "127.0.0.1:1",
        ):
            for path in ("/", "/events"):
                assert get(server.server_port, path, host).status == 403
        assert get(server.server_port, host=f"localhost:{server.server_port}").status == 200
        assert get(server.server_port, "/etc/passwd").status == 404
        assert get(server.server_port, "/../page.js").status == 404


def test_the_page_asks_nothing_of_the_network():
    with Live(0) as server:
        response = get(server.server_port)
        text = response.read().decode()
    assert "default-src 'none'; connect-src 'self'" in text
    assert text.replace("http://www.w3.org/2000/svg", "").count("://") == 0


def test_old_steps_are_forgotten_and_nothing_is_left_running():
    before = set(threading.enumerate())
    with Live(0) as server:
        for t in range(2 * STEPS_KEPT):
            server.publish({"t": t})
        stream = get(server.server_port, "/events")
        port = server.server_port
    found = [step["t"] for step in events(stream)]
    assert len(found) in (STEPS_KEPT - 1, STEPS_KEPT)  # the end is kept as a step is
    assert found == list(range(2 * STEPS_KEPT))[-len(found) :]
    for thread in set(threading.enumerate()) - before:  # the last of them may just be ending
        thread.join(SECONDS)
    assert set(threading.enumerate()) <= before
    with pytest.raises(ConnectionRefusedError):
        get(port)
    with Live(port):  # the port is free again
        pass


def test_a_port_that_cannot_be_had_is_told():
    with Live(0) as server:
        for port in (server.server_port, 70000):
            with pytest.raises(InputError, match=f"cannot serve on port {port}"), Live(port):
                pass


def test_those_who_leave_do_no_harm():
    with Live(0) as server:
        get(server.server_port, "/events").close()
        for t in range(50):
            server.publish({"t": t})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["filter", "--model", "m.kb", "--serve"], "--follow"),
        (["filter", "--model", "m.kb", "--follow", "--serve", "-1"], "must be an integer"),
        (["filter", "--model", "m.kb", "--follow", "--serve", "x"], "'x'"),
    ],
)
def test_bad_input_is_one_line(arguments, expected, capsys):
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert expected in printed.err
    assert len(printed.err.splitlines()) == 1


def test_the_command_serves_what_it_writes_and_ends_with_its_input(tmp_path):
    rng = np.random.default_rng(0)
    Z = np.cumsum(rng.normal(size=40))
    X = Z + 0.1 * rng.normal(size=40)
    model = kb.KernelBayesFilter(kb.Gaussian(1.0), kb.Gaussian(1.0), ridge=0.1, rng=0).fit(X, Z)
    path = tmp_path / "model.kb"
    kb.save({"model": model, "columns": {"x": ["x"], "z": ["z"], "u": None}}, path)
    command = [sys.executable, "-m", "kernelbayes", "filter", "--model", str(path), "--follow"]
    process = subprocess.Popen(
        [*command, "--serve", "0"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        port = int(process.stderr.readline().rstrip("/\n").rpartition(":")[2])
        stream = get(port, "/events")
        out, err = process.communicate("x\n0.1\n\n0.3\n".replace("\n\n", "\n0.2\n"), timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    assert err == ""
    rows = [line.split(",") for line in out.splitlines()]
    sent = events(stream)
    assert [step["t"] for step in sent] == [1.0, 2.0, 3.0]
    for step, row in zip(sent, rows[1:], strict=True):
        assert [step[name] for name in rows[0]] == [float(value) for value in row]
