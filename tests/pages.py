"""Pages of every kind of result, with names that try to break out of them."""

import json
from html.parser import HTMLParser

import numpy as np
from scipy import stats

import kernelbayes as kb

HOSTILE = ["</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a&b <b>'c'</b>"]


def rows(seed=0, n=60):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    Z = np.column_stack([X[:, 0] + 0.3 * rng.normal(size=n), np.sin(X[:, 1])])
    return rng, X, Z


def circle(rng, T):
    angle = 0.3 * np.arange(T) + 0.1 * rng.normal(size=T)
    Z = np.column_stack([np.cos(angle), np.sin(angle)])
    return Z + 0.2 * rng.normal(size=Z.shape), Z


def simulator(theta, rng):
    return theta + rng.normal(size=theta.shape)


def rule(which):
    """A posterior for one or more observations, of one or two numbers or of categories."""
    _, X, Z = rows()
    hidden = {"one": Z[:, 0], "two": Z, "names": np.array(HOSTILE)[(Z[:, 0] > 0).astype(int)]}
    model = kb.KernelBayesRule().fit(X, hidden[which])
    return model, X


def posterior(which, query):
    model, X = rule(which)
    options = {"names": HOSTILE[: {"one": 1, "two": 2, "names": 1}[which]]}
    return model.posterior(X[query]), {"model": model, **options}


def filtered(which):
    rng, *_ = rows()
    X, Z = circle(rng, 90)
    Z = {"plane": Z, "line": Z[:, 0], "names": np.array(HOSTILE)[(Z[:, 0] > 0).astype(int)]}[which]
    model = kb.KernelBayesFilter(kb.Gaussian(1.0), None, rng=0).fit(X[:60], Z[:60])
    truth = {"truth": Z[60:]} if which != "names" else {}
    return model.filter(X[60:]), {"model": model, **truth}


def many():
    rng, *_ = rows()
    X, Z = circle(rng, 90)
    model = kb.KernelBayesFilter(kb.Gaussian(1.0), None, rng=0).fit(X[:60], Z[:60])
    return model.filter([X[60:75], X[75:]]), {"model": model}


def simulated():
    prior = [stats.norm(), stats.uniform(-3, 6)]
    found = kb.infer(simulator, prior, [1.0, 0.5], n_simulations=200, rng=0)
    return found, {"names": HOSTILE[:2]}


def amortized():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(200, 1))
    model = kb.LikelihoodFree([stats.norm()], rng=0).fit(theta, simulator(theta, rng))
    return model.posterior([[0.0], [1.0]]), {"model": model}


def graph(cases):
    _, X, Z = rows()
    data = dict(zip(HOSTILE, (X[:, 0], X[:, 1], Z[:, 0]), strict=True))
    model = kb.KernelBeliefPropagation([HOSTILE[:2], HOSTILE[1:]]).fit(data)
    given = np.array([0.1, 0.5])[:cases]
    return model.query(evidence={HOSTILE[0]: given if cases > 1 else 0.1}), {"model": model}


def drift():
    _, X, Z = rows()
    kinds = np.array(HOSTILE)[(X[:, 1] > 0).astype(int)]
    a = {HOSTILE[0]: X[:, 0], HOSTILE[1]: kinds}
    return kb.drift_report(a, {HOSTILE[0]: Z[:, 0] + 1.0, HOSTILE[1]: kinds[::-1]}, rng=0), {}


def tuned():
    _, X, Z = rows()
    return kb.tune(kb.KernelBayesRule(), X, Z[:, 0], rng=0, budget=5), {}


def tested(name):
    _, X, Z = rows()
    arguments = {
        "mmd_test": (X, X + 0.4),
        "hsic_test": (X[:, 0], Z[:, 0]),
        "ci_test": (X[:, 0], Z[:, 0], X[:, 1]),
        "mmd_aggregated": (X[:, 0], X[:, 0] + 0.4),
    }[name]
    return getattr(kb, name)(*arguments, rng=0), {}


# Each makes a result and options of report. The number is that of the pictures.
PAGES = {
    "one posterior": (lambda: posterior("one", 0), 1),
    "posterior in the plane": (lambda: posterior("two", 0), 3),
    "posterior of names": (lambda: posterior("names", 0), 1),
    "batch": (lambda: posterior("one", slice(20)), 2),
    "batch in the plane": (lambda: posterior("two", slice(20)), 5),
    "batch of names": (lambda: posterior("names", slice(20)), 2),
    "filter in the plane": (lambda: filtered("plane"), 5),
    "filter on the line": (lambda: filtered("line"), 2),
    "filter of names": (lambda: filtered("names"), 2),
    "several sequences": (many, 10),
    "likelihood-free": (simulated, 3),
    "likelihood-free, two observations": (amortized, 1),
    "graph": (lambda: graph(1), 2),
    "graph, two cases": (lambda: graph(2), 4),
    "drift": (drift, 3),
    "tuned": (tuned, 0),
    "two samples": (lambda: tested("mmd_test"), 2),
    "independence": (lambda: tested("hsic_test"), 2),
    "given a third": (lambda: tested("ci_test"), 2),
    "many kernels": (lambda: tested("mmd_aggregated"), 2),
}


class Seen(HTMLParser):
    """Elements of a page, its text, and what stands in its scripts."""

    VOID = frozenset({"meta", "link", "input", "br", "img", "rect", "path", "line"})

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.texts, self.json, self.bad = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.bad.append(tag)

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            if self.elements[-1][1].get("type") == "application/json":
                self.json.append(json.loads(data))
        else:
            self.texts.append(data)

    def count(self, tag, kind=None):
        return sum(t == tag and kind in (None, a.get("class")) for t, a in self.elements)

    @property
    def text(self):
        return " ".join(self.texts)
