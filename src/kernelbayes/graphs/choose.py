"""Choices on held-out data: kernels from pairs, iterations from cases with known answers."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import softmax

from kernelbayes.arrays import as_array, as_doubles, quiet
from kernelbayes.gram.loo import loo_subset
from kernelbayes.graphs.evidence import read_evidence
from kernelbayes.graphs.linear import Linear, columns
from kernelbayes.graphs.propagate import Propagation
from kernelbayes.graphs.reading import Kernels, Learned, edge_kernels, learn, part, rows_of
from kernelbayes.graphs.relation import Domain, Floor, Relation
from kernelbayes.graphs.structure import Node
from kernelbayes.kernels import Kernel, Laplace
from kernelbayes.rules.conditional import Ridge
from kernelbayes.select.search import coarse_to_fine
from kernelbayes.tables import Row, Table
from kernelbayes.types import Floats, Ints, PointsLike

# Multiples of the median distance tried first as bandwidths, and the narrowest. The best is near 1
# for a smooth chain of 1000 pairs, and near 1/10 for neighbouring pixels of an image with edges.
# Beyond eight times the median a Gaussian kernel is almost a polynomial.
FIRST_SCALES = (1.0, 0.5, 2.0)
NARROWEST_SCALE, WIDEST_SCALE = 1.0 / 32.0, 8.0
End = tuple[int, int]  # of a relation: its number and side
Place = tuple[int, Sequence[End]]  # a domain, and ends of edges that have its points
# Distinct points up to which the Laplace kernel is tried: its Gram matrix has full rank, so that
# the cost grows with their cube.
LAPLACE_POINTS = 500
# Pairs of an edge used to choose kernels, half of them held out in turn. Fewer training pairs would
# favour kernels that are too wide for the full sample. At least 500 of each half are scored, more
# where a message has few values: scores of good kernels differ by about a hundredth.
SCALE_PAIRS, SCORED_PAIRS, SCORED_VALUES = 10_000, 500, 500_000
# Shares of the Gaussian tried. With all of it, intervals of what is not linear are too short.
SHARES_TRIED = (0.0, 0.25, 0.5, 0.75)
# Rows used to choose the share, folds of them, times that cells of a fold are hidden; pairs that an
# edge must have, as a fold may leave it with none of fewer; the share of numbers hidden.
SHARE_ROWS, SHARE_FOLDS, REPEATS, SHARE_PAIRS, HIDDEN_SHARE = 2000, 4, 5, 20, 0.1


def held_out_scores(relation: Relation, floor: Floor) -> Floats:
    """Log scores (m,) of held-out pairs, in both directions.

    The pairs are split in two halves. Messages learned from one half are scored on the other by the
    log of p(x_s | x_t) / p(x_s), the message of evidence x_t at x_s divided by its mean there. The
    score of independent variables is zero.
    """
    order = np.random.default_rng(0).permutation(len(relation.i))[:SCALE_PAIRS]
    halves = order[::2], order[1::2]
    scores = []
    for train, test in (halves, halves[::-1]):
        learned = replace(relation, i=relation.i[train], j=relation.j[train])
        test = test[: max(SCORED_PAIRS, SCORED_VALUES // max(d.size for d in relation.domains))]
        rows = relation.i[test], relation.j[test]
        for side in (0, 1):
            domain, operator = relation.domains[side], learned.operators[side]
            m = operator.evidence(relation.domains[1 - side].F[rows[1 - side]])
            logs, _ = operator.logs(m, 1.0, floor)
            shares = np.bincount(learned.i if side == 0 else learned.j, minlength=domain.size)
            mean = np.exp(logs) @ (shares / shares.sum())
            scores.append(logs[np.arange(len(m)), rows[side]] - np.log(mean))
    return np.concatenate(scores)


def choose_scales(learned: Learned, kernels: Kernels, floor: Floor) -> tuple[Learned, Table]:
    """Choose the kernels that were not given: multiples of the median bandwidth, or Laplace.

    Domains are visited in turn, those with most edges first, and then the edges of domains that
    have several. The median is kept unless a kernel is better on held-out pairs by more than the
    standard error of the difference.
    """
    table, graph = Table(), learned.graph
    for place in _open_places(learned, kernels):
        number, ends = place
        kernel, found = learned.relations[ends[0][0]].domains[ends[0][1]].kernel, learned
        if kernel.scaled(2.0) == kernel:
            continue

        def score(kernel: Kernel, place: Place = place, found: Learned = found) -> Row:
            changed = with_kernels(found, *place, lambda _: kernel)
            touched = [changed.relations[r] for r in sorted({r for r, _ in place[1]})]
            scores = np.concatenate([held_out_scores(relation, floor) for relation in touched])
            return {"score": -float(scores.mean()), "scores": scores, "learned": changed}

        limits = {"narrowest": NARROWEST_SCALE, "widest": WIDEST_SCALE, "finest": 2.0}
        tried = coarse_to_fine(
            kernel.scaled, score, math.inf, start=FIRST_SCALES, parallel=True, **limits
        )
        h = kernel.gaussian_bandwidth
        if h is not None and found.domains[number].size <= LAPLACE_POINTS:
            tried.append({"scale": "Laplace", **score(Laplace(h))})
        node = graph.nodes[int(np.flatnonzero(graph.domain == number)[0])]
        where = {"node": node, "edge": graph.names[ends[0][0]] if len(ends) == 1 else "all"}
        table += [{**where, "scale": row["scale"], "score": row["score"]} for row in tried]
        gain = tried.best["scores"] - tried[0]["scores"]
        if gain.mean() > gain.std() / np.sqrt(len(gain)):
            learned = tried.best["learned"]
    return learned, table


def _open_places(learned: Learned, kernels: Kernels) -> list[Place]:
    """Places where kernels are to be chosen: domains first, then single ends of their edges."""
    if kernels is not None and not isinstance(kernels, Mapping):
        return []
    graph = learned.graph
    given = {graph.domain[graph.position[node]] for node in kernels or () if node in graph.position}
    taken = [r for r, name in enumerate(graph.names) if edge_kernels(kernels, name) is not None]
    ends: dict[int, Sequence[End]] = {}
    for r, side in np.ndindex(*learned.sides.shape):
        if r not in taken and learned.sides[r, side] not in given:
            number = int(learned.sides[r, side])
            ends[number] = [*ends.get(number, ()), (r, side)]
    whole = sorted(ends.items(), key=lambda one: -len(one[1]))
    return whole + [(d, [end]) for d, some in whole if len(some) > 1 for end in some]


def with_kernels(
    learned: Learned, number: int, ends: Iterable[End], change: Callable[[Kernel], Kernel]
) -> Learned:
    """Change the kernels at some ends of edges, and that of their domain if there are several."""
    domains, relations, ends = list(learned.domains), list(learned.relations), list(ends)
    made: dict[Domain, Domain] = {}  # edges share domains

    def changed(domain: Domain) -> Domain:
        return made.setdefault(domain, replace(domain, kernel=change(domain.kernel)))

    if len(ends) != 1 or (learned.sides == number).sum() == 1:
        domains[number] = changed(domains[number])
    for r, side in ends:
        first, second = (changed(d) if k == side else d for k, d in enumerate(relations[r].domains))
        relations[r] = replace(relations[r], first=first, second=second)
    return replace(learned, domains=tuple(domains), relations=tuple(relations))


def rescaled(learned: Learned, nodes: Iterable[Node], scale: float) -> Learned:
    """Multiply the bandwidths of some nodes' samples, at all of their edges."""
    numbers = {int(learned.graph.domain[learned.graph.position[node]]) for node in nodes}
    for number in numbers if scale != 1.0 else ():
        ends = [(int(r), int(side)) for r, side in np.argwhere(learned.sides == number)]
        learned = with_kernels(learned, number, ends, lambda kernel: kernel.scaled(scale))
    return learned


def scored_iterations(
    passed: Propagation,
    truth: Mapping[Node, PointsLike],
    most: int,
    tolerance: float,
    judge: Learned,
) -> Floats:
    """Mean kernel score of beliefs after each iteration, with the kernels of ``judge``."""
    learned = passed.learned
    groups: dict[int, list[Node]] = {}
    for node in truth:
        number = int(learned.graph.domain[learned.graph.position[node]])
        groups.setdefault(number, []).append(node)
    targets = {}
    for number, nodes in groups.items():
        domain, graph = judge.domains[number], learned.graph
        places = passed.place[[graph.position[node] for node in nodes]]
        each = [truth[node] for node in nodes]
        if passed.cases > 1:
            for node, some in zip(nodes, each, strict=True):
                if not hasattr(some, "__len__") or len(some) != passed.cases:
                    needed = f"{passed.cases} values, one for each case"
                    raise ValueError(f"the truth of {node!r} must have {needed}")
            each = [value for some in each for value in some]
        features = domain.features(domain.kernel.points(each, "truth"))
        targets[number] = places, features.reshape(len(nodes), passed.cases, -1)
    scores = []

    def watch() -> bool:
        losses = []
        for number, (places, features) in targets.items():
            domain = judge.domains[number]
            logs = passed.totals(number, places) + np.log(domain.shares)
            weights = softmax(logs, axis=-1)
            losses.append(np.sum((features - weights @ domain.F) ** 2, axis=2).ravel())
        scores.append(float(np.concatenate(losses).mean()))
        return False

    passed.after_iteration = watch  # type: ignore[method-assign]
    passed.run("synchronous", most, tolerance)
    return np.array(scores)


def choose_share(learned: Learned, data: Mapping[Node, PointsLike], ridge: Ridge) -> Learned:
    """Add a Gaussian of all columns to a learned tree, with the share best on held-out cells.

    Some of the numbers in each fold of the rows are hidden, besides those that are missing, and
    scored by the continuous ranked probability score, in standard deviations of each column.
    """
    graph, parts = learned.graph, {node: part(data[node], node) for node in learned.graph.nodes}
    rows = loo_subset(len(parts[graph.nodes[0]].present), SHARE_ROWS)

    def values(rows: Ints) -> dict[Node, PointsLike]:
        return {node: rows_of(one.values, rows) for node, one in parts.items()}

    linear = Linear.of(learned, read_evidence(learned, values(rows)), len(rows))
    targets = [node for node in graph.nodes if linear.adds_to(node, learned.domain_of(node))]
    few = min((len(relation.i) for relation in learned.relations), default=0) < SHARE_PAIRS
    if few or sum(b > a for a, b in linear.places.values()) < 3 or not targets:
        return learned
    kernels: dict[Any, Any] = {node: learned.domain_of(node).kernel for node in graph.nodes}
    for name, relation in zip(graph.names, learned.relations, strict=True):
        kernels[name] = tuple(one.kernel for one in relation.domains)
    rng, losses = np.random.default_rng(0), np.zeros(len(SHARES_TRIED))
    order = rng.permutation(rows)
    for test in (order[fold::SHARE_FOLDS] for fold in range(SHARE_FOLDS)):
        train = values(np.setdiff1d(rows, test))
        inner = learn(graph.edges, None, train, kernels, ridge, learned.domains[0].rank, 0)
        model = Linear.of(inner, read_evidence(inner, train), len(rows) - len(test))
        for _ in range(REPEATS):
            evidence, truth = values(test), {}
            for node in targets:
                own = as_doubles(as_array(evidence[node])).reshape(len(test), 1)
                hidden = rng.random((len(test), 1)) < HIDDEN_SHARE
                truth[node] = np.where(hidden, own, np.nan)
                evidence[node] = np.where(hidden, np.nan, own)
            observed = read_evidence(inner, evidence)
            passed = Propagation(inner, observed, {}, len(test))
            E, var, _ = model.given(model.rows(inner, observed, len(test)))
            with quiet():
                passed.run("tree", 1, 1.0)
            for node, own in truth.items():
                lost, domain = np.flatnonzero(~np.isnan(own)), inner.domain_of(node)
                at, x = graph.position[node], columns(domain, domain.points)[:, 0]  # sorted
                above = x[:-1] >= columns(domain, own[lost])
                logs = passed.totals(int(passed.domain[at]), passed.place[[at]])[0, lost]
                for k, share in enumerate(SHARES_TRIED):
                    model = replace(model, share=share)
                    pooled = model.pooled(node, domain, logs, E[lost], var[lost])
                    below = np.cumsum(softmax(pooled + np.log(domain.shares), axis=-1), axis=1)
                    losses[k] += float(((below[:, :-1] - above) ** 2 @ np.diff(x)).sum())
    best = SHARES_TRIED[int(losses.argmin())]
    return replace(learned, linear=replace(linear, share=best) if best else None)
