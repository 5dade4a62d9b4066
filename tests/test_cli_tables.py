"""The command line on tables: what it answers, and one line for what is wrong."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.cli import main


def written(path, **columns):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return str(path)


def table(text):
    rows = list(csv.reader(io.StringIO(text)))
    return {name: [row[j] for row in rows[1:]] for j, name in enumerate(rows[0])}


def numbers(text, name):
    return np.array(table(text)[name], dtype=float)


@pytest.fixture
def pairs(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2))
    z = x[:, 0] - x[:, 1] + 0.1 * rng.normal(size=80)
    train = written(
        tmp_path / "train.csv", a=x[:, 0], b=x[:, 1], z=z, kind=np.where(z > 0, "p", "n")
    )
    new = written(tmp_path / "new.csv", b=x[:5, 1], a=x[:5, 0])
    return train, new, x, z


def test_posterior_is_that_of_the_library(pairs, capsys, tmp_path):
    train, new, x, z = pairs
    model = str(tmp_path / "model.kb")
    assert main(["posterior", train, "--x", "a,b", "--z", "z", "--new", new, "--save", model]) == 0
    printed = capsys.readouterr().out
    rule = kb.KernelBayesRule(rng=0).fit(x, z[:, None])
    np.testing.assert_allclose(numbers(printed, "z_mean"), rule.posterior(x[:5]).mean()[:, 0])
    ends = rule.predict_interval(x[:5])  # corrected by left-out pairs
    np.testing.assert_allclose(numbers(printed, "z_high"), ends[:, 0, 1])
    sd = rule.predict(x[:5], return_std=True)[1][:, 0]
    np.testing.assert_allclose(numbers(printed, "z_sd"), sd)
    shown = [(row["sd"], row["95%"]) for row in rule.posterior(x[:5]).summary()]  # of a report
    np.testing.assert_allclose(shown, np.column_stack([sd, ends[:, 0, 1]]))
    assert main(["posterior", "--model", model, "--new", new]) == 0
    assert capsys.readouterr().out == printed
    out = tmp_path / "out.csv"
    assert main(["posterior", "--model", model, "--new", new, "--out", str(out)]) == 0
    assert capsys.readouterr().out == ""
    assert out.read_text() == printed


def test_hidden_categories(pairs, capsys):
    train, new, *_, z = pairs
    assert main(["posterior", train, "--x", "a,b", "--z", "kind", "--new", new]) == 0
    printed = capsys.readouterr().out
    found = table(printed)
    clear = np.abs(z[:5]) > 0.5
    truth = np.where(z[:5] > 0, "p", "n")
    assert np.all((np.array(found["kind"]) == truth)[clear])
    np.testing.assert_allclose(numbers(printed, "kind_n") + numbers(printed, "kind_p"), 1.0)


def test_only_columns_with_empty_cells_are_named(tmp_path, capsys):
    full, holed = ["p", "n", "p"], ["u", "", "v"]
    train = written(tmp_path / "t.csv", full=full, holed=holed, z=[0.0, 1.0, 2.0])
    assert main(["posterior", train, "--x", "full,holed", "--z", "z", "--new", train]) == 2
    said = capsys.readouterr().err.strip()
    assert said.endswith("column 'holed', row 3 is empty; a category is needed")


@pytest.mark.parametrize("library", ["polars", "pandas"])
def test_parquet_in_and_out(library, pairs, capsys, tmp_path, monkeypatch):
    polars = pytest.importorskip("polars")
    train, new, *_ = pairs
    frame = polars.read_csv(train).with_columns(polars.col("a").cast(polars.Decimal(12, 6)))
    frame.write_parquet(tmp_path / "train.parquet")
    if library == "pandas":
        pytest.importorskip("pyarrow")
        monkeypatch.setitem(sys.modules, "polars", None)
    asked = ["--x", "a,b", "--z", "kind", "--new", new]
    assert main(["posterior", train, *asked]) == 0
    printed = capsys.readouterr().out
    out = tmp_path / "out.parquet"
    assert main(["posterior", str(tmp_path / "train.parquet"), *asked, "--out", str(out)]) == 0
    found = polars.read_parquet(out)
    assert found.columns == list(table(printed))
    assert found["kind"].to_list() == table(printed)["kind"]
    np.testing.assert_allclose(found["kind_p"].to_numpy(), numbers(printed, "kind_p"), atol=1e-3)
    out.write_text("no Parquet")
    assert "not a Parquet file" in failing(capsys, "posterior", out, *asked)


@pytest.fixture
def walk(tmp_path):
    rng = np.random.default_rng(1)
    t = np.arange(120)
    z = np.sin(t / 7.0)
    x = z + 0.2 * rng.normal(size=120)
    train = written(tmp_path / "walk.csv", t=t, x=x, z=z, walk=t // 60)
    new = written(tmp_path / "new.csv", x=[*x[:6], ""])
    return train, new, x, z


def test_filter_and_follow(walk, capsys, tmp_path, monkeypatch):
    train, new, x, z = walk
    model = str(tmp_path / "model.kb")
    fit = ["filter", train, "--x", "x", "--z", "z", "--sequence", "walk", "--save", model]
    assert main(fit) == 0
    assert main(["filter", "--model", model, "--new", new]) == 0
    printed = capsys.readouterr().out
    columns = x[:, None], z[:, None]
    parts = [[c[:60], c[60:]] for c in columns]
    expected = kb.KernelBayesFilter(rng=0).fit(*parts).filter(np.array([*x[:6], np.nan])[:, None])
    np.testing.assert_allclose(numbers(printed, "z_mean"), expected.mean()[:, 0])
    lines = Path(new).read_text().splitlines(keepends=True)
    state, shown = str(tmp_path / "state.kb"), []
    for part in (lines[:3], [lines[0], *lines[3:]]):  # stopped after two steps, started again
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(part)))
        assert main(["filter", "--model", model, "--follow", "--state", state]) == 0
        shown.append(numbers(capsys.readouterr().out, "z_mean"))
    np.testing.assert_allclose(np.concatenate(shown), expected.mean()[:, 0], rtol=1e-9)
    assert main(["filter", "--model", model, "--new", new, "--smooth"]) == 0
    assert len(numbers(capsys.readouterr().out, "z_mean")) == 7
    # Sequences of new data are told apart by the column of training, where there is one.
    both = written(tmp_path / "both.csv", walk=["a"] * 3 + ["b"] * 3, x=x[:6])
    for given in ([], ["--sequence", "walk"]):
        assert main(["filter", "--model", model, "--new", both, *given]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[-1] == shown[-2]
    assert shown[-1].startswith("walk,z_mean")


def follow(model, state, lines, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines) + "\n"))
    code = main(["filter", "--model", model, "--follow", "--state", state])
    return code, capsys.readouterr()


def test_follow_with_categories_seen_and_hidden(tmp_path, capsys, monkeypatch):
    """What comes line by line is what a table gives, whatever is text."""
    rng = np.random.default_rng(0)
    z = np.sin(np.arange(90) / 5.0)
    x = z + 0.2 * rng.normal(size=90)
    columns = {"x": x, "lamp": np.where(x > 0.0, "on", "off"), "z": z}
    columns["floor"] = np.where(z > 0.0, "up", "down")
    train = written(tmp_path / "walk.csv", **columns)
    new = written(tmp_path / "new.csv", x=x[:4], lamp=columns["lamp"][:4])
    lines = Path(new).read_text().splitlines()
    for seen, hidden in (("x", "floor"), ("lamp", "z"), ("x,lamp", "z,floor")):
        model, state = (str(tmp_path / f"{seen}-{hidden}.{end}") for end in ("kb", "state"))
        fit = ["filter", train, "--x", seen, "--z", hidden, "--new", new, "--save", model]
        assert main(fit) == 0
        expected = table(capsys.readouterr().out)
        parts = [lines[:3], [lines[0], *lines[3:]]]  # stopped after two steps, started again
        found = [follow(model, state, p, monkeypatch, capsys)[1].out for p in parts]
        for name, cells in expected.items():
            shown = [cell for text in found for cell in table(text)[name]]
            if name == "floor":
                assert shown == cells
            else:
                np.testing.assert_allclose(np.float64(shown), np.float64(cells), atol=1e-9)
    code, printed = follow(model, state, ["x,lamp", ","], monkeypatch, capsys)  # nothing is seen
    assert code == 0
    assert len(printed.out.splitlines()) == 2
    for line, words in (
        ("0.1,", "column 'lamp', row 2 is"),
        ("dark,on", "column 'x', row 2: 'dark'"),
    ):
        code, printed = follow(model, state, ["x,lamp", line], monkeypatch, capsys)
        assert code == 2
        assert words in printed.err


def test_new_tables_are_read_as_the_training_table(tmp_path, capsys):
    """Codes of categories stay text where all look like numbers, and text is no new number."""
    x, code, z = [0.0, 0.1, 2.0, 2.1] * 5, ["1", "y", "x", "x"] * 5, [0.0, 0.1, 5.0, 5.1] * 5
    train = written(tmp_path / "train.csv", x=x, code=code, z=z)
    new = written(tmp_path / "new.csv", x=["0.0"], code=["1"])
    for columns, d in (("code", 1), ("x,code", 2)):
        asked = ["posterior", train, "--x", columns, "--z", "z"]
        assert main([*asked, "--new", new]) == 0
        assert numbers(capsys.readouterr().out, "z_mean")[0] < 1.0 + d
    wrong = written(tmp_path / "wrong.csv", x=["far"], code=["1"])
    for command in ([*asked, "--new", wrong], ["test", train, wrong, "--x", "x"]):
        assert "wrong.csv: column 'x', row 2: 'far' is not a number" in failing(capsys, *command)


def test_follow_refuses_the_state_of_another_model(walk, tmp_path, capsys, monkeypatch):
    z = np.zeros((3, 1))
    kb.save(kb.KernelBayesFilter(rng=0, **PLAIN).fit(z, z).start(), tmp_path / "state.kb")
    kb.save(kb.Gaussian(1.0), tmp_path / "kernel.kb")
    model = str(tmp_path / "model.kb")
    assert main(["filter", walk[0], "--x", "x", "--z", "z", "--save", model]) == 0
    capsys.readouterr()
    for name, words in (("state", "another filter"), ("kernel", "a FilterState is needed")):
        code, said = follow(model, str(tmp_path / f"{name}.kb"), ["x", "1"], monkeypatch, capsys)
        assert code == 2
        assert words in said.err
    state = str(tmp_path / "other.kb")
    code, said = follow(model, state, ["x", "", "1"], monkeypatch, capsys)  # nothing, then 1
    assert code == 0
    assert len(said.out.splitlines()) == 3
    code, said = follow(model, state, ["x,x", "1,1"], monkeypatch, capsys)
    assert code == 2
    assert "two columns named 'x'" in said.err


def test_numbers_and_a_category_are_hidden(pairs, capsys):
    train, new, _, z = pairs
    asked = ["--x", "a,b", "--new", new]
    assert main(["posterior", train, "--z", "z,kind", *asked]) == 0
    printed = capsys.readouterr().out
    found = table(printed)
    assert list(found)[:5] == ["z_mean", "z_sd", "z_low", "z_high", "kind"]
    np.testing.assert_allclose(numbers(printed, "kind_n") + numbers(printed, "kind_p"), 1.0)
    low, high = numbers(printed, "z_low"), numbers(printed, "z_high")
    assert np.all((low < high) & (low - 1.0 < z[:5]) & (z[:5] < high + 1.0))


def test_tune_prints_what_it_tried_and_keeps_the_model(pairs, capsys, tmp_path):
    train, new, x, z = pairs
    model = str(tmp_path / "model.kb")
    assert main(["tune", train, "--x", "a,b", "--z", "z", "--save", model]) == 0
    expected = kb.tune(kb.KernelBayesRule(rng=0), x, z[:, None], rng=0)
    printed = capsys.readouterr().out
    np.testing.assert_allclose(
        numbers(printed, "score"), [row["score"] for row in expected.tuning_]
    )
    assert table(printed)["kernel"][0] == str(expected.tuning_[0]["kernel"])
    assert main(["posterior", "--model", model, "--new", new]) == 0
    found = numbers(capsys.readouterr().out, "z_mean")
    np.testing.assert_allclose(found, expected.posterior(x[:5]).mean()[:, 0])


def test_tune_of_a_filter(walk, capsys, tmp_path, monkeypatch):
    train, new, *_ = walk
    asked = {}

    def tuned(model, X, Z, controls, rng):
        asked["sequences"] = len(X)
        found = model.set_params(**PLAIN).fit(X, Z, controls)
        found.tuning_ = [{"score": 0.5, "kernel": kb.Gaussian(1.0)}, {"score": 0.7, "rank": 3}]
        return found

    monkeypatch.setattr("kernelbayes.cli.filter.tune_filter", tuned)
    model = str(tmp_path / "walk.kb")
    given = ["tune", train, "--x", "x", "--z", "z", "--sequence", "walk", "--save", model]
    assert main(given) == 0
    printed = table(capsys.readouterr().out)
    assert printed["score"] == ["0.5", "0.7"]
    assert printed["rank"] == ["", "3"]
    assert asked["sequences"] == 2
    assert main(["filter", "--model", model, "--new", new]) == 0


PLAIN = {"lags": 1, "order": 1, "features": "raw", "back_ridge": 0.1}


def test_reproduce_lists_and_runs_experiments(capfd, tmp_path, monkeypatch):
    folder = tmp_path / "experiments" / "fig1"
    folder.mkdir(parents=True)
    script = (
        '"""Figure 1: what it shows.\n\nMore.\n\nTime: quick 5 s, full 2 h."""\n'
        "import sys\nfrom pathlib import Path\n"
        'Path(__file__).with_name("quick.csv").write_text("1")\nprint(sys.argv[1:])\nsys.exit(3)\n'
    )
    (folder / "run.py").write_text(script)
    (folder / "full.csv").write_text("committed")
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce"]) == 0
    listed = capfd.readouterr().out.splitlines()[1]
    assert listed.split(maxsplit=5) == ["fig1", "5", "s", "2", "h", "Figure 1: what it shows."]
    assert main(["reproduce", "fig1", "--runs", "2"]) == 3  # its own exit code
    assert capfd.readouterr().out == "['--runs', '2']\n"
    assert {p.name for p in folder.iterdir()} == {"run.py", "quick.csv", "full.csv"}
    assert main(["reproduce", "fig1", "--quick", "--out", "copy"]) == 3
    assert capfd.readouterr().out == "['--quick']\n"
    copy = tmp_path / "copy" / "fig1"
    assert (copy / "run.py").read_text() == script
    assert {p.name for p in copy.iterdir()} == {"run.py", "results.csv"}
    assert main(["reproduce", "fig2"]) == 2
    assert "no experiment 'fig2'; choose one of fig1" in capfd.readouterr().err


@pytest.fixture
def holes(tmp_path):
    """Columns a, b and kind, of which b and kind follow from a; a fifth of b and kind is empty."""
    rng = np.random.default_rng(2)
    a = rng.uniform(-2.0, 2.0, size=150)
    b, kind = 2.0 * a + 0.1 * rng.normal(size=150), np.where(a > 0, "up", "down").astype(object)
    gone = rng.random((2, 150)) < 0.2
    path = tmp_path / "holes.csv"
    shown = np.where(gone[0], "", b.astype(str)), np.where(gone[1], "", kind)
    return written(path, a=a, b=shown[0], kind=shown[1]), a, b, kind, gone


@pytest.mark.parametrize("edges", [[], ["--edges", "a-b,a-kind"]])
def test_graph_fills_the_holes_of_a_table(holes, capsys, edges):
    path, a, b, kind, (no_b, no_kind) = holes
    assert main(["graph", path, *edges]) == 0
    printed = capsys.readouterr().out
    found = numbers(printed, "b")
    np.testing.assert_allclose(found[~no_b], b[~no_b])
    np.testing.assert_allclose(numbers(printed, "b_low")[~no_b], b[~no_b])
    assert np.mean((found - b)[no_b] ** 2) < 0.2 * np.var(b)  # what follows from a is found
    assert np.all(numbers(printed, "b_low")[no_b] <= numbers(printed, "b_high")[no_b])
    named = np.array(table(printed)["kind"])
    assert np.array_equal(named[~no_kind], kind[~no_kind])
    clear = no_kind & (np.abs(a) > 0.5) & (np.abs(a) < 1.8)  # neither near zero nor at an edge
    assert np.array_equal(named[clear], kind[clear])


def test_graph_needs_edges_of_its_columns(holes, capsys):
    assert main(["graph", holes[0], "--edges", "a-c"]) == 2
    assert "an edge joins two columns" in capsys.readouterr().err


PROBLEM = """
from scipy import stats
prior = [stats.norm(0, 1)]
def simulator(theta, rng):
    return theta + 0.5 * rng.normal(size=theta.shape)
"""


def test_infer_from_a_simulator_or_a_table(tmp_path, capsys):
    (tmp_path / "problem.py").write_text(PROBLEM)
    observed = written(tmp_path / "observed.csv", x=[0.8])
    # Posterior N(0.64, 0.2); 500 simulations leave a tenth of a deviation.
    command = ["infer", str(tmp_path / "problem.py"), "--observed", observed, "-n", "500"]
    assert main(command) == 0
    assert numbers(capsys.readouterr().out, "mean")[0] == pytest.approx(0.64, abs=0.15)
    assert main([*command[:-1], "150", "--rounds", "auto"]) == 0
    assert numbers(capsys.readouterr().out, "mean")[0] == pytest.approx(0.64, abs=0.25)
    rng = np.random.default_rng(2)
    theta = rng.normal(size=500)
    x = theta + 0.5 * rng.normal(size=500)
    runs = written(tmp_path / "runs.csv", rate=theta, x=x)
    assert main(["infer", runs, "--theta", "rate", "--observed", observed, "--draws", "200"]) == 0
    draws = numbers(capsys.readouterr().out, "rate")
    assert len(draws) == 200
    assert draws.mean() == pytest.approx(0.64, abs=0.25)


def test_infer_says_when_rounds_would_help(tmp_path, capsys):
    (tmp_path / "problem.py").write_text(PROBLEM.replace("norm(0, 1)", "norm(0, 100)"))
    observed = written(tmp_path / "observed.csv", x=[0.8])
    command = ["infer", str(tmp_path / "problem.py"), "--observed", observed, "-n", "100"]
    assert main(command) == 0
    assert "note: only about" in (said := capsys.readouterr().err)
    assert "--rounds auto" in said
    assert main([*command, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_tests(pairs, tmp_path, capsys):
    train, _, x, _ = pairs
    other = written(tmp_path / "other.csv", a=x[:, 0] + 2.0, b=x[:, 1])
    assert main(["test", train, other, "--x", "a,b"]) == 0
    assert json.loads(capsys.readouterr().out)["pvalue"] < 0.01
    assert main(["test", train, "--x", "a", "--y", "z"]) == 0
    assert json.loads(capsys.readouterr().out)["test"] == "hsic"
    assert (
        main(["test", train, "--x", "a", "--y", "b", "--given", "z", "--permutations", "99"]) == 0
    )
    assert json.loads(capsys.readouterr().out)["test"] == "ci"


def test_columns_that_are_not_asked_for_may_hold_anything(tmp_path, capsys):
    path = written(tmp_path / "t.csv", a=[0.0, 1.0, 2.0] * 5, note=["1", "2", "see above"] * 5)
    assert main(["test", path, path, "--x", "a", "--permutations", "9"]) == 0
    assert main(["drift", path, path, "--columns", "a"]) == 0
    capsys.readouterr()
    assert "'see above' is not a number" in failing(capsys, "drift", path, path)


def test_drift(tmp_path, capsys):
    rng = np.random.default_rng(0)
    city = np.where(rng.random(60) < 0.5, "Rome", "")
    a = written(tmp_path / "a.csv", age=rng.normal(size=60), city=city)
    b = written(tmp_path / "b.csv", city=city, age=rng.normal(3.0, size=60))
    assert main(["drift", a, b]) == 0
    printed = capsys.readouterr()
    found = table(printed.out)
    assert found["column"] == ["age", "city"]
    assert found["drifted"] == ["True", "False"]
    assert printed.err.startswith("1 of 2 columns differ (age)")
    out = tmp_path / "drift.csv"
    assert main(["drift", a, b, "--columns", "city", "--quiet", "--out", str(out)]) == 0
    assert capsys.readouterr() == ("", "")
    assert table(out.read_text())["column"] == ["city"]
    assert "no column 'town'" in failing(capsys, "drift", a, b, "--columns", "town")


def failing(capsys, *argv):
    assert main([str(a) for a in argv]) == 2
    caught = capsys.readouterr()
    assert caught.out == ""
    (line,) = caught.err.splitlines()
    return line


def test_bad_tables(tmp_path, capsys):
    ask = ("--x", "a", "--z", "z", "--new", tmp_path / "t.csv")
    path = tmp_path / "t.csv"
    assert "cannot read" in failing(capsys, "posterior", path, *ask)
    path.write_text("")
    assert "is empty" in failing(capsys, "posterior", path, *ask)
    path.write_text("a,z\n")
    assert "is empty" in failing(capsys, "posterior", path, *ask)
    path.write_text("a,z\n1,2\n3,oops\n")
    assert "column 'z', row 3: 'oops' is not a number" in failing(capsys, "posterior", path, *ask)
    for command in (("graph", path), ("drift", path, path), ("test", path, path)):
        assert "column 'z', row 3: 'oops' is not a number" in failing(capsys, *command)
    for name in ("answer.xlsx", "answer", "nowhere/answer.csv"):  # before any work is done
        words = failing(capsys, "posterior", path, *ask, "--out", tmp_path / name)
        assert "argument --out" in words
    assert "ends with .json" in failing(capsys, "test", path, path, "--out", tmp_path / "t.csv")
    assert "a column is named twice" in failing(capsys, "posterior", path, "--x", "a,a", "--z", "z")
    path.write_text("a,z\n1,2\n")
    assert "at least 2" in failing(capsys, "tune", path, "--quiet", *ask[:4])
    path.write_text("a;z\n1;2\n")
    assert "separated by commas" in failing(capsys, "graph", path)
    path.write_text("a,z\n1,2\n3\n")
    assert "row 3 has 1 cells" in failing(capsys, "posterior", path, *ask)
    path.write_text("a,a\n1,2\n")
    assert "two columns named 'a'" in failing(capsys, "posterior", path, *ask)
    path.write_text("a,y\n1,2\n")
    assert "has no column 'z'; it has a, y" in failing(capsys, "posterior", path, *ask)
    path.write_text("a,z\n1,2\n,3\n")
    assert "column 'a', row 3 is empty" in failing(capsys, "posterior", path, *ask)
    path.write_text('a,z\n1,"2\n3,4\n')
    assert "t.csv: not a table in CSV: unexpected end" in failing(capsys, "posterior", path, *ask)
    path.write_text(f"a,z\n1,{'9' * 200_000}\n")
    assert "t.csv: not a table in CSV: field larger" in failing(capsys, "posterior", path, *ask)
    path.write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in failing(capsys, "posterior", path, *ask)
    assert "unknown file type" in failing(capsys, "posterior", tmp_path / "t.txt", *ask)


def test_bad_use(pairs, tmp_path, capsys):
    train, new, *_ = pairs
    assert "--z" in failing(capsys, "posterior", train, "--x", "a", "--new", new)
    for command in ("posterior", "filter"):
        asked = [command, train, "--x", "a", "--z", "z"]
        assert "--save" in failing(capsys, *asked)
        for end in ("out.csv", "report.html"):
            option = f"--{end.partition('.')[0]}"
            words = failing(capsys, *asked, "--save", tmp_path / "m.kb", option, tmp_path / end)
            assert "need new observations" in words
    model = tmp_path / "model.kb"
    words = failing(capsys, "posterior", train, "--x", "a", "--model", model, "--new", new)
    assert words.endswith("is fitted already; leave out TRAIN, --x")
    assert "cannot read" in failing(capsys, "posterior", "--model", model, "--new", new)
    model.write_bytes(b"rubbish")
    assert "not a file" in failing(capsys, "posterior", "--model", model, "--new", new)
    kb.save(kb.Gaussian(1.0), model)
    assert "does not contain" in failing(capsys, "filter", "--model", model, "--new", new)
    (tmp_path / "p.py").write_text("prior = 1")
    assert "must define simulator" in failing(capsys, "infer", tmp_path / "p.py", "--observed", new)
    for script in ("1 / 0", "import sys; sys.exit(3)"):
        (tmp_path / "p.py").write_text(script)
        assert "p.py failed" in failing(capsys, "infer", tmp_path / "p.py", "--observed", new)
    asked = ["infer", train, "--theta", "z", "--observed", new]
    assert "needs a simulator" in failing(capsys, *asked, "--rounds", "2")
    assert "must be an integer" in failing(capsys, *asked, "--rounds", "many")
    assert "two tables" in failing(capsys, "test", train)
    assert "between 0 and 1" in failing(capsys, "posterior", train, "--level", "90")


def closed(*argv):
    """Run a command whose reader has gone away: exit code, and what it says about it."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "kernelbayes", *argv]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    return done.returncode, done.stderr


@pytest.mark.parametrize("rows", [5, 5000])  # less and more than a buffer holds
def test_a_reader_may_leave_early(rows, pairs, tmp_path):
    """As ``head`` does: no word about it, and the page is written all the same."""
    train, _, x, z = pairs
    kb.save(
        {"model": kb.KernelBayesRule(rng=0).fit(x, z), "columns": {"x": ["a", "b"], "z": ["z"]}},
        tmp_path / "model.kb",
    )
    many = np.resize(x, (rows, 2))
    new = written(tmp_path / "many.csv", a=many[:, 0], b=many[:, 1])
    page = tmp_path / "page.html"
    model = ("--model", str(tmp_path / "model.kb"))
    assert closed("posterior", *model, "--new", new, "--report", str(page), "--quiet") == (0, "")
    assert "</html>" in page.read_text()
    assert closed("test", train, "--x", "a", "--y", "b") == (0, "")
    assert closed("reproduce") == closed("--help") == (0, "")


def test_a_full_disk_is_one_line(pairs, capsys, monkeypatch):
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())
    line = failing(capsys, "test", pairs[0], "--x", "a", "--y", "b")
    assert "No space left" in line


@pytest.mark.parametrize("command", ["posterior", "filter", "infer", "test", "drift", "demo"])
def test_every_command_has_help(command):
    done = subprocess.run(
        [sys.executable, "-m", "kernelbayes", command, "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "usage: kernelbayes" in done.stdout
