"""Small files of every version, which all later versions load with the same numbers.

``python tests/old_files.py`` writes those of this version of the library and of the format into a
directory of ``tests/old_files``: once, before a release or when the format changes. A directory
that is there is never written again.
"""

import json
import warnings
from pathlib import Path

import numpy as np

import kernelbayes as kb
from kernelbayes.files.archive import FORMAT

FOLDER = Path(__file__).parent / "old_files"


def directory():
    """Directory of this version; the first one was named without its format."""
    return f"{kb.__version__}-format{FORMAT}"


def made():
    """Objects by name."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 2))
    z = x[:, :1] + 0.1 * rng.normal(size=(20, 1))
    chosen = {"kernel_x": kb.Gaussian(1.0), "kernel_z": kb.Gaussian(1.0), "ridge": 0.01}
    rule = kb.KernelBayesRule(**chosen, prior_ridge=0.01).fit(x, z)
    graph = kb.KernelBeliefPropagation([("a", "b")]).fit({"a": x[:, 0], "b": z[:, 0]})
    walker = kb.KernelBayesFilter(rng=0).fit(x, z)
    plain = kb.KernelBayesFilter(rng=0, lags=1, order=1, features="raw").fit(x, z, z[1:] - z[:-1])
    theta = rng.normal(size=(20, 1))
    simulated = theta + 0.3 * rng.normal(size=(20, 1))
    free = {m: kb.LikelihoodFree(method=m, rng=0) for m in ("adjusted", "likelihood")}
    return {
        **{m: model.fit(theta, simulated).posterior([0.2]) for m, model in free.items()},
        "embedding": kb.embed(x, kb.Matern(1.0, 2.5), np.full(20, 0.05)),
        "batch": kb.embed(z, kb.Gaussian(0.5), rng.uniform(size=(3, 20))),
        "conditional": kb.ConditionalEmbedding(kb.Gaussian(1.0), kb.Gaussian(1.0), 0.01).fit(x, z),
        "rule": rule,
        "posterior": rule.posterior(x[:3]),
        "filter": walker,
        "controls": plain,
        "windows": kb.KernelBayesFilter(rng=0, lags=3, order=1, features="raw").fit(x, z),
        "tracked": kb.KernelBayesFilter(rng=0, features="tracked").fit(np.r_[x, x], np.r_[z, z]),
        "particles": kb.KernelMonteCarloFilter(None, z, rng=0).fit(x, z),
        "state": walker.step(walker.start(), x[0])[0],
        "graph": graph,
        "test": kb.mmd_test(x[:10], x[10:], permutations=19, rng=0),
        "drift": kb.drift_report(x[:10], x[10:], permutations=19, rng=0),
    }


def numbers(name, obj):
    """What an object answers, as a list of numbers."""
    new = np.array([[0.3, -0.2], [0.1, 0.5]])
    found = {
        "conditional": lambda: obj(new).weights,
        "rule": lambda: obj.posterior(new).weights,
        "filter": lambda: obj.filter(new).mean(),
        "windows": lambda: obj.filter(new).mean(),
        "tracked": lambda: obj.filter(new).mean(),
        "controls": lambda: obj.filter(new, new[:1, :1]).mean(),
        "particles": lambda: obj.filter(new).mean(),
        "state": lambda: obj.belief.mean(),
        "graph": lambda: obj.query(evidence={"a": 0.2})["b"].mean(),
        "test": lambda: np.r_[obj.statistic, obj.pvalue, obj.null],
        "drift": lambda: [row["pvalue"] for row in obj.columns],
    }.get(name, lambda: np.c_[np.atleast_2d(obj.mean()), np.atleast_2d(obj.std())])
    return np.ravel(found()).tolist()


def main():
    folder = FOLDER / directory()
    folder.mkdir(parents=True)
    expected = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kb.NumericalWarning)
        for name, obj in made().items():
            kb.save(obj, folder / f"{name}.kb")
            expected[name] = numbers(name, obj)
    (folder / "numbers.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
