"""What is chosen on held-out data: bandwidths on pairs, iterations on cases that are solved."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import softmax

from kernelbayes.graphs.propagate import Propagation
from kernelbayes.graphs.reading import Kernels, Learned, edge_kernels
from kernelbayes.graphs.relation import Domain, Floor, Relation
from kernelbayes.graphs.structure import Node
from kernelbayes.kernels import Kernel, Laplace
from kernelbayes.select.search import coarse_to_fine
from kernelbayes.tables import Row, Table
from kernelbayes.types import Floats, PointsLike

# Multiples of the median distance that are tried first as bandwidths, and the narrowest: the best
# for a smooth chain of 1000 pairs is near 1, for neighbouring pixels of an image with edges near
# 1/10. Beyond eight times the median a Gaussian kernel is all but a polynomial.
FIRST_SCALES = (1.0, 0.5, 2.0)
NARROWEST_SCALE, WIDEST_SCALE = 1.0 / 32.0, 8.0
End = tuple[int, int]  # of a relation: its number and side
Place = tuple[int, Sequence[End]]  # a domain, and ends of edges that have its points
# Distinct points up to which the Laplace kernel is tried: its Gram matrix has full rank, so that
# the cost grows with their cube.
LAPLACE_POINTS = 500
# Pairs of an edge that decide on kernels, half of them held out in turn: fewer to learn from favour
# kernels that are too wide for all. Of each half at least 500 are scored, more where a message has
# few values: what tells good kernels apart is of the order of a hundredth of a unit.
SCALE_PAIRS, SCORED_PAIRS, SCORED_VALUES = 10_000, 500, 500_000


def held_out_scores(relation: Relation, floor: Floor) -> Floats:
    """Log scores (m,) of held-out pairs, in both directions.

    The pairs are split in two halves; what is learned from one is scored on the other: the log of
    p(x_s | x_t) / p(x_s), the message of the evidence x_t at x_s, over its mean on the other half.
    It is zero for a relation that says nothing.
    """
    order = np.random.default_rng(0).permutation(relation.n)[:SCALE_PAIRS]
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
    """Kernels that were not given, by scores of held-out pairs: a multiple of the median, Laplace.

    One domain after the other, those with most edges first; then, where a domain has several
    edges, one edge after the other. The first guess stays unless another is better by more than
    the standard error of the difference.
    """
    table, graph = Table(), learned.graph
    for place in _open_places(learned, kernels):
        number, ends = place
        kernel, found = learned.relations[ends[0][0]].domains[ends[0][1]].kernel, learned
        if kernel.scaled(2.0) == kernel:
            continue

        def score(kernel: Kernel, place: Place = place, found: Learned = found) -> Row:
            changed = with_kernel(found, *place, kernel)
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
    """Where kernels are to be chosen: whole domains first, then single ends of their edges."""
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


def with_kernel(learned: Learned, number: int, ends: Sequence[End], kernel: Kernel) -> Learned:
    """Another kernel at some ends of edges, and of their domain if there are several."""
    domains, relations = list(learned.domains), list(learned.relations)
    changed = replace(domains[number], kernel=kernel)
    if len(ends) != 1 or (learned.sides == number).sum() == 1:
        domains[number] = changed
    for r, side in ends:
        first, second = (changed if k == side else d for k, d in enumerate(relations[r].domains))
        relations[r] = replace(relations[r], first=first, second=second)
    return Learned(learned.graph, tuple(domains), tuple(relations))


def rescaled(learned: Learned, nodes: Iterable[Node], scale: float) -> Learned:
    """Multiply the bandwidths of some nodes' samples, at all of their edges."""
    numbers = {int(learned.graph.domain[learned.graph.position[node]]) for node in nodes}
    made: dict[Domain, Domain] = {}  # edges share domains

    def scaled(domain: Domain, number: int) -> Domain:
        kernel = domain.kernel.scaled(scale)
        if number not in numbers or kernel == domain.kernel:
            return domain
        return made.setdefault(domain, replace(domain, kernel=kernel))

    domains = tuple(scaled(domain, k) for k, domain in enumerate(learned.domains))
    relations = []
    for relation, ends in zip(learned.relations, learned.sides, strict=True):
        first, second = map(scaled, relation.domains, ends.tolist())
        same = (first, second) == relation.domains
        relations.append(relation if same else replace(relation, first=first, second=second))
    return Learned(learned.graph, domains, tuple(relations))


def scored_iterations(
    passed: Propagation,
    truth: Mapping[Node, PointsLike],
    most: int,
    tolerance: float,
    judge: Learned,
) -> Floats:
    r"""Mean kernel score of the beliefs of some nodes after each iteration.

    That is :math:`|\phi(x) - \mu|^2` for the true value x, a proper score in the RKHS that the node
    has in ``judge``, which has the same points.
    """
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
            each = [value for node in nodes for value in _cases(truth[node], node, passed.cases)]
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


def _cases(values: PointsLike, node: Node, cases: int) -> Sequence[Any]:
    """Return the true values of one node, one for each case of evidence."""
    if not hasattr(values, "__len__") or len(values) != cases:
        raise ValueError(f"the truth of {node!r} must have {cases} values, one for each case")
    found: Sequence[Any] = values
    return found
