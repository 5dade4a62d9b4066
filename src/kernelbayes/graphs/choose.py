"""What is chosen on held-out data: bandwidths on pairs, iterations on cases that are solved."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernelbayes.arrays import Floats
from kernelbayes.graphs.propagate import TINY, Propagation
from kernelbayes.graphs.reading import Kernels, Learned
from kernelbayes.graphs.relation import Domain, Relation
from kernelbayes.graphs.structure import Node
from kernelbayes.kernels import Kernel
from kernelbayes.points import PointsLike
from kernelbayes.select.search import coarse_to_fine
from kernelbayes.tables import Row, Table

# Multiples of the median distance that are tried first as bandwidths, and the narrowest: the best
# for a smooth chain of 1000 pairs is near 1, for neighbouring pixels of an image with edges near
# 1/10. Beyond eight times the median a Gaussian kernel is all but a polynomial.
FIRST_SCALES = (1.0, 0.5, 2.0)
NARROWEST_SCALE, WIDEST_SCALE = 1.0 / 32.0, 8.0
# Pairs of an edge that decide on bandwidths, half of them held out in turn; more cost time and
# decide little more.
SCALE_PAIRS = 1000


def held_out_scores(relation: Relation, floor: float) -> Floats:
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
        rows = relation.i[test], relation.j[test]
        for side in (0, 1):
            domain, operator = relation.domains[side], learned.operators[side]
            m = operator.evidence(relation.domains[1 - side].F[rows[1 - side]])
            least = TINY if domain.kernel.is_categorical else floor
            top = m.max(axis=1, keepdims=True)
            m = np.where(top > 0.0, np.maximum(m / np.where(top > 0.0, top, 1.0), least), 1.0)
            shares = np.bincount(learned.i if side == 0 else learned.j, minlength=domain.size)
            own = m[np.arange(len(m)), rows[side]]
            scores.append(np.log(own) - np.log(m @ (shares / shares.sum())))
    return np.concatenate(scores)


def choose_scales(learned: Learned, own: Sequence[int], floor: float) -> tuple[Learned, Table]:
    """Bandwidths of some domains, as multiples of the first guess, by scores of held-out pairs.

    One domain after the other, those with most edges first. The first guess stays unless another
    is better by more than the standard error of the difference.
    """
    table, graph = Table(), learned.graph
    degree = {d: sum(learned.domains[d] in r.domains for r in learned.relations) for d in own}
    for number in sorted((d for d in own if degree[d]), key=lambda d: -degree[d]):
        domain, found = learned.domains[number], learned
        if domain.kernel.scaled(2.0) == domain.kernel:
            continue

        def score(kernel: Kernel, number: int = number, found: Learned = found) -> Row:
            scaled = replace(found.domains[number], kernel=kernel)
            changed = with_domain(found, number, scaled)
            touched = [r for r in changed.relations if scaled in r.domains]
            scores = np.concatenate([held_out_scores(r, floor) for r in touched])
            return {"score": -float(scores.mean()), "scores": scores, "learned": changed}

        tried = coarse_to_fine(
            domain.kernel.scaled, score, math.inf,
            start=FIRST_SCALES, finest=2.0, narrowest=NARROWEST_SCALE, widest=WIDEST_SCALE,
        )  # fmt: skip
        node = graph.nodes[int(np.flatnonzero(graph.domain == number)[0])]
        table += [{"node": node, "scale": r["scale"], "score": r["score"]} for r in tried]
        gain = tried.best["scores"] - tried[0]["scores"]
        if gain.mean() > gain.std() / np.sqrt(len(gain)):
            learned = tried.best["learned"]
    return learned, table


def default_domains(learned: Learned, kernels: Kernels) -> list[int]:
    """Domains for which no kernel was given."""
    if kernels is not None and not isinstance(kernels, Mapping):
        return []
    given = {
        learned.graph.position[node] for node in kernels or () if node in learned.graph.position
    }
    taken = {int(learned.graph.domain[at]) for at in given}
    return [number for number in range(len(learned.domains)) if number not in taken]


def with_domain(learned: Learned, number: int, domain: Domain) -> Learned:
    """Another domain in the place of one, with the relations that have it."""
    old = learned.domains[number]
    domains = tuple(domain if d is old else d for d in learned.domains)
    relations = []
    for relation in learned.relations:
        first, second = (domain if d is old else d for d in relation.domains)
        kept = old not in relation.domains
        relations.append(relation if kept else replace(relation, first=first, second=second))
    return Learned(learned.graph, domains, tuple(relations))


def rescaled(learned: Learned, nodes: Iterable[Node], scale: float) -> Learned:
    """Multiply the bandwidths of some nodes' samples."""
    graph = learned.graph
    for number in sorted({int(graph.domain[graph.position[node]]) for node in nodes}):
        domain = learned.domains[number]
        kernel = domain.kernel.scaled(scale)
        if kernel != domain.kernel:
            learned = with_domain(learned, number, replace(domain, kernel=kernel))
    return learned


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
            weights = np.exp(logs - logs.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
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
