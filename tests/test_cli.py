"""The command line: what it prints, what it writes, how it fails."""

import re
import subprocess
import sys

import matplotlib
import pytest

import kernelbayes as kb
from kernelbayes.cli import main
from kernelbayes.demo import story

matplotlib.use("Agg")


@pytest.fixture
def short_story(monkeypatch):
    """The demo with few frames: what it prints and writes, not how well it does."""
    for name, value in {"LABELLED": 40, "SWITCHED_ON": 2, "FRAMES": 24}.items():
        monkeypatch.setattr(story, name, value)


@pytest.mark.usefixtures("short_story")
def test_demo_prints_a_table_and_writes_a_picture_and_a_film(tmp_path, capsys):
    out = tmp_path / "pictures"
    assert main(["demo", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    for method in ("always the middle", "nearest frames", "frames and wheels"):
        assert sum(line.startswith(method) for line in printed.splitlines()) == 1
    # Printed, not warned of.
    assert re.search(r"[1-9]\d* of all 48 are far from the training frames", printed)
    for name, start in (("robot.png", b"\x89PNG\r\n"), ("robot.gif", b"GIF89a")):
        assert str(out / name) in printed
        written = (out / name).read_bytes()
        assert written.startswith(start)
        assert len(written) > 10_000


@pytest.mark.usefixtures("short_story")
def test_demo_without_matplotlib_prints_the_table_and_how_to_get_the_pictures(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    out = tmp_path / "pictures"
    assert main(["demo", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "frames and wheels" in printed
    assert "pip install 'kernelbayes[plot]'" in printed.splitlines()[-1]
    assert not out.exists()


@pytest.mark.usefixtures("short_story")
def test_demo_is_the_same_for_the_same_seed_only(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    printed = []
    for seed in ("3", "3", "4"):
        main(["demo", "--out", str(tmp_path), "--seed", seed])
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != printed[2]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["demo", "--seed", "-1"], "must be an integer"),
        (["demo", "--seed", "one"], "'one'"),
        (["demo", "--colour"], "--colour"),
        (["nonsense"], "nonsense"),
    ],
)
def test_bad_input_is_exit_code_2_and_one_line(arguments, expected, capsys):
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert expected in printed.err


def test_out_that_is_a_file_is_refused_before_any_work(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("mine")
    assert main(["demo", "--out", str(file)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "must be a directory" in printed.err
    assert file.read_text() == "mine"


@pytest.mark.usefixtures("short_story")
def test_out_below_a_file_is_refused_with_one_line(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("mine")
    assert main(["demo", "--out", str(file / "below")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_no_command_prints_help(capsys):
    assert main([]) == 0
    assert "demo" in capsys.readouterr().out


def test_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"kernelbayes {kb.__version__}\n"


def test_module_runs_as_a_command():
    done = subprocess.run(
        [sys.executable, "-m", "kernelbayes", "--seed"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("kernelbayes: error:")


def test_importing_the_package_does_not_import_matplotlib():
    code = "import sys, kernelbayes.cli; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
