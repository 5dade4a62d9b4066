"""Every python block of the documentation runs, page by page, in the order of the page."""

import re
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.embedding import export

matplotlib.use("Agg")
DOCS = Path(__file__).parents[1] / "docs"
PAGES = {
    page.name: blocks
    for page in sorted(DOCS.glob("*.md"))
    if (blocks := re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.S))
}
# Pages that take minutes, or need torch.
MARKS = {"likelihood_free.md": pytest.mark.slow, "learned_features.md": pytest.mark.torch}
every_page = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=MARKS.get(name, ())) for name in PAGES]
)


def names(name):
    """What a page takes for granted, beside the library and NumPy."""
    rng = np.random.default_rng(0)
    known = {"kb": kb, "np": np}
    X = rng.normal(size=(60, 2))
    Z = X + 0.2 * rng.normal(size=(60, 2))
    pairs = {"X": X, "Z": Z, "X_new": X[:7] + 0.1, "x_new": X[0], "U": Z[:30], "V": Z[30:]}
    if name in ("decoding.md", "rules.md"):
        return known | pairs
    if name == "filters.md":
        angle = 0.2 * np.arange(90.0)
        Z = np.column_stack([np.cos(angle), np.sin(angle)])
        X = Z + 0.1 * rng.normal(size=Z.shape)
        new = {"X_new": X[60:], "Z_new": Z[60:], "X_1": X[60:70], "X_2": X[70:], "stream": X[60:70]}
        known |= {"X": X[:60], "Z": Z[:60], "t": 3, "points": Z[:4], **new}
        return known | {"controls": rng.normal(size=(60, 1))}
    if name == "tests.md":
        a = {"age": rng.normal(size=40), "city": rng.choice(["Rome", "Oslo"], size=40)}
        known |= {"x": X[:, 0], "y": X[:, 1] + 0.5, "G": X @ np.eye(2) @ X.T, "before": a}
        known["G"] = kb.Gaussian(1.0)(np.vstack([X, Z])[:70], np.vstack([X, Z])[:70])
        return known | {"after": {key: column[::-1] for key, column in a.items()}}
    if name == "herding.md":
        kernel = kb.Gaussian(1.0)
        beliefs = kb.embed(X, kernel, rng.dirichlet(np.ones(60), size=3))
        return known | {"kernel": kernel, "points": X, "beliefs": beliefs}
    return known


@pytest.mark.fixed_seed
@pytest.mark.filterwarnings("ignore::kernelbayes.NumericalWarning")
@every_page
def test_the_code_of_a_page_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = np.random.default_rng  # pages leave seeds out where they do not matter
    monkeypatch.setattr(
        np.random, "default_rng", lambda seed=None: made(0 if seed is None else seed)
    )
    space = names(name)
    for block in PAGES[name]:
        exec(compile(block, f"docs/{name}", "exec"), space)
    plt.close("all")


@pytest.mark.parametrize("name", [page.name for page in sorted(DOCS.glob("*.md"))])
def test_links_between_pages_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (DOCS / name).read_text("utf-8")):
        assert (DOCS / target).exists(), f"{name} links to {target}, which is not there"


def test_the_table_of_thresholds_is_that_of_the_code():
    page = (DOCS / "diagnostics.md").read_text()
    rows = {line.split("|")[1].split()[0]: line for line in page.splitlines() if "| `" in line}
    assert f"{export.GOOD_ESS:g} or more" in rows["`ess`"]
    assert f"below {export.LEAST_ESS:g}:" in rows["`ess`"]
    assert f"above {export.MOST_FILLED:g}:" in rows["`filled`"]
    good, look = export.NEGATIVE
    assert f"below {good:g} | above {look:g}:" in rows["`negative`"]
    good, look = (f"{number:g}".replace("+0", "").replace("+", "") for number in export.CONDITION)
    assert f"below {good}:" in rows["`condition`"]
    assert f"above {look}:" in rows["`condition`"]
