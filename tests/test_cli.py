"""The command line: what it prints, what it writes, how it fails."""

import subprocess
import sys

import matplotlib
import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.cli import main
from kernelbayes.demo import DEVIATION, MEAN, reaction_times

matplotlib.use("Agg")


def rows(text):
    """Numbers of the demo's table: name -> (found, chance, ratio)."""
    table = {}
    for line in text.splitlines():
        for name in ("difference of means", "difference of variances", "MMD"):
            if line.startswith(name):
                words = line.removeprefix(name).split()
                table[name] = [float(w) for w in words if w not in ("ms", "ms²")]
    return table


def test_demo_prints_a_table_and_draws_a_picture(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path / "pictures")]) == 0
    out = capsys.readouterr().out
    picture = tmp_path / "pictures" / "witness.png"
    assert str(picture) in out
    assert picture.read_bytes().startswith(b"\x89PNG\r\n")
    assert picture.stat().st_size > 10_000


@pytest.mark.parametrize("seed", range(10))
def test_demo_tells_its_story_for_every_seed(seed, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # the table is enough
    main(["demo", "--out", str(tmp_path), "--seed", str(seed)])
    table = rows(capsys.readouterr().out)
    assert table["difference of means"][0] == 0.0
    assert table["difference of variances"][0] == 0.0
    # The distance of the two populations is about three times what chance does to an MMD, so a
    # ratio of one would take a sample that far from its own population.
    assert table["MMD"][2] > 1.0


def test_demo_without_matplotlib_prints_the_table_and_how_to_get_the_picture(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    out = tmp_path / "pictures"
    assert main(["demo", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "MMD" in rows(printed)
    assert "pip install 'kernelbayes[plot]'" in printed.splitlines()[-1]
    assert not out.exists()


def test_demo_samples_share_mean_and_variance_and_nothing_else():
    for sample in reaction_times(np.random.default_rng(1)):
        np.testing.assert_allclose([sample.mean(), sample.std()], [MEAN, DEVIATION], rtol=1e-12)
    a, b = reaction_times(np.random.default_rng(1))
    a2, _ = reaction_times(1)
    np.testing.assert_array_equal(a, a2)
    assert np.abs(np.sort(a) - np.sort(b)).max() > 0.1 * DEVIATION


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["demo", "--seed", "-1"], "whole number"),
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
