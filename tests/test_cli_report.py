"""--report of every command: a page, and the same answer as without it."""

import csv

import numpy as np
import pytest

import pages
from kernelbayes.cli import main


def written(path, **columns):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return str(path)


@pytest.fixture
def tables(tmp_path):
    """Commands on small tables, by name; one of the columns is named to break out of a page."""
    rng, X, Z = pages.rows()
    bad = "<b>a</b>"
    train = written(tmp_path / "train.csv", **{bad: X[:, 0], "b": X[:, 1], "z": Z[:, 0]})
    new = written(tmp_path / "new.csv", **{bad: X[:5, 0], "b": X[:5, 1]})
    holes = np.where(np.arange(60) % 10 == 0, "", np.round(Z[:, 0], 3).astype(str))
    table = written(tmp_path / "holes.csv", **{bad: X[:, 0], "z": holes})
    seen, states = pages.circle(rng, 60)
    walks = written(tmp_path / "walks.csv", x0=seen[:, 0], x1=seen[:, 1], z=states[:, 0])
    runs = written(tmp_path / "runs.csv", t=X[:, 0], x=Z[:, 0])
    data = written(tmp_path / "data.csv", x=[0.3])
    columns = ["--x", f"{bad},b", "--z", "z"]
    return {
        "posterior": ["posterior", train, *columns, "--new", new],
        "filter": ["filter", walks, "--x", "x0,x1", "--z", "z", "--new", walks],
        "infer": ["infer", runs, "--theta", "t", "--observed", data],
        "test": ["test", train, "--x", bad, "--y", "z"],
        "drift": ["drift", train, train],
        "tune": ["tune", train, *columns],
        "graph": ["graph", table, "--edges", f"{bad}-z"],
    }


COMMANDS = ["posterior", "filter", "infer", "test", "drift", "tune", "graph"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_writes_a_page_beside_its_answer(tables, tmp_path, capsys, name):
    command = [*tables[name], "--quiet"]
    assert main(command) == 0
    answer = capsys.readouterr().out
    page = tmp_path / "page.html"
    assert main([*command, "--report", str(page)]) == 0
    assert capsys.readouterr().out == answer
    seen = pages.Seen(page.read_text(encoding="utf-8"))
    assert seen.bad == seen.open == []
    assert seen.count("b") == 0
    assert f"kernelbayes {name} " in seen.text  # the command that makes it again
    assert (seen.count("figure", "picture") > 0) == (name != "tune")
    assert ("calibration" in seen.text) == (name in ("posterior", "filter"))


@pytest.mark.parametrize("page", ["page.txt", "nowhere/page.html"])
def test_a_page_that_cannot_be_written_is_refused_before_any_work(tables, tmp_path, capsys, page):
    assert main([*tables["test"], "--report", str(tmp_path / page)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
