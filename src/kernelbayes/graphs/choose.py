"""Choices on held-out data: kernels from pairs, iterations from cases with known answers."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

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
                    told = f"{passed.cases} values, one for each case"
                    raise ValueError(f"the truth of {node!r} must have {told}")
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
