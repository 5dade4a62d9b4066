"""Tables with missing cells, and what fills them: kernels and the imputers of scikit-learn."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

import kernelbayes as kb

ROWS, LEVEL = 300, 0.9
Z = 1.6449  # half the width of a 90 % interval of a normal distribution, in deviations


def household(rng):
    """Mixed columns that depend on each other one by one: a tree."""
    age = rng.uniform(20, 65, ROWS)
    job = (rng.random(ROWS) < (age - 20) / 60).astype(float)
    income = 20 + 0.4 * age + 25 * job + 4 * rng.normal(size=ROWS)
    rent = 5 + 0.3 * income + 2 * rng.normal(size=ROWS)
    return {"age": age, "job": job, "income": income, "rent": rent}, {"job"}


def ring(rng):
    """Numbers on a noisy ring, and a category that says which quarter: curved, several modes."""
    angle = rng.uniform(0, 2 * np.pi, ROWS)
    x, y = (f(angle) + 0.1 * rng.normal(size=ROWS) for f in (np.cos, np.sin))
    quarter = np.floor(2 * angle / np.pi)
    return {"x": x, "y": y, "quarter": quarter, "height": x * x + 0.1 * rng.normal(size=ROWS)}, {
        "quarter"
    }


def linear(rng):
    """Gaussian columns, each a sum of several others: no tree, and what regression is made for."""
    A = rng.normal(size=(5, 5))
    values = rng.normal(size=(ROWS, 5)) @ A.T + 0.5 * rng.normal(size=(ROWS, 5))
    return {f"v{k}": values[:, k] for k in range(5)}, set()


def real(load, columns=None):
    """Table of scikit-learn: up to 300 of its rows, its first columns, and its classes if any."""

    def table(rng):
        data = load()
        rows = rng.permutation(len(data.data))[:ROWS]
        found = {f"v{k}": values for k, values in enumerate(data.data[rows, :columns].T)}
        if hasattr(data, "target_names"):
            found["class"] = data.target[rows].astype(float)
        return found, {"class"} & found.keys()

    return table


def kernel(table, categories):
    """Means and 90 % intervals of all cells, by belief propagation on a learned tree."""
    data = {k: _named(v) if k in categories else v for k, v in table.items()}
    model = kb.KernelBeliefPropagation("tree").fit(data)
    beliefs = model.query(list(table), data)
    means, low, high = {}, {}, {}
    for name in table:
        if name in categories:
            means[name] = np.array([float(text) for text in beliefs[name].mode()])
            continue
        means[name] = beliefs[name].mean()[:, 0]
        low[name], high[name] = beliefs[name].interval(LEVEL)[:, 0].T
    return means, low, high


def _named(codes):
    return np.array([None if np.isnan(c) else str(c) for c in codes], dtype=object)


def sklearn_imputer(make, sampled=0):
    """Imputer on numbers, categories as indicators; intervals from what is left out.

    ``sampled`` > 0 takes that many draws of the imputer for the intervals; otherwise they are the
    value plus and minus 1.64 deviations of errors at cells that are hidden on purpose.
    """

    def impute(table, categories):
        columns, names = [], []
        for name, values in table.items():
            # all levels but one: with all of them each is known from the others, and an iterative
            # imputer stays where it starts
            levels = np.unique(values[~np.isnan(values)])[1:] if name in categories else [None]
            for level in levels:
                hot = (
                    values if level is None else np.where(np.isnan(values), values, values == level)
                )
                columns.append(np.asarray(hot, dtype=float))
                names.append((name, level))
        X = np.column_stack(columns)
        centre, scale = np.nanmean(X, axis=0), np.nanstd(X, axis=0)
        S = (X - centre) / scale
        filled = make().fit_transform(S) * scale + centre
        means, low, high = {}, {}, {}
        draws = [make(k).fit_transform(S) * scale + centre for k in range(sampled)]
        hide = np.random.default_rng(1).random(S.shape) < 0.1
        again = make().fit_transform(np.where(hide, np.nan, S)) * scale + centre
        for k, (name, level) in enumerate(names):
            if level is None:
                means[name] = filled[:, k]
                known = hide[:, k] & ~np.isnan(S[:, k])
                spread = Z * np.sqrt(np.mean((again - X)[known, k] ** 2))
                low[name], high[name] = filled[:, k] - spread, filled[:, k] + spread
                if draws:
                    ends = np.quantile([d[:, k] for d in draws], [0.05, 0.95], axis=0)
                    low[name], high[name] = ends
        for name in categories:
            own = [k for k, (n, _) in enumerate(names) if n == name]
            levels = np.unique(table[name][~np.isnan(table[name])])
            shares = np.column_stack([1.0 - filled[:, own].sum(axis=1), filled[:, own]])
            means[name] = levels[np.argmax(shares, axis=1)]
        return means, low, high

    return impute


METHODS = {
    "kernel belief propagation": kernel,
    "mean": sklearn_imputer(lambda seed=0: SimpleImputer()),  # noqa: ARG005
    "nearest neighbours": sklearn_imputer(lambda seed=0: KNNImputer(n_neighbors=10)),  # noqa: ARG005
    "iterative": sklearn_imputer(
        lambda seed=None: IterativeImputer(
            random_state=seed or 0, sample_posterior=seed is not None, max_iter=10
        ),
        sampled=20,
    ),
}

TABLES = {
    "household": household, "ring": ring, "linear": linear, "iris": real(load_iris),
    "wine": real(load_wine), "diabetes": real(load_diabetes),
    "breast cancer": real(load_breast_cancer, columns=10),
}  # fmt: skip
