"""What is known of single nodes: values, distributions, likelihoods, noisy children."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelbayes.arrays import Array, Bools, Floats, as_doubles, frame_kind
from kernelbayes.embedding import Batch, Embedding
from kernelbayes.graphs.reading import Learned, distinct, part
from kernelbayes.graphs.relation import Domain, Operator, Relation
from kernelbayes.graphs.structure import Node
from kernelbayes.points import Points, PointsLike, count, query, take
from kernelbayes.rules.cme import ConditionalEmbedding
from kernelbayes.rules.conditional import Conditional
from kernelbayes.rules.variable import Variable

Likelihood = Callable[[Points], Array]
# A function of points, likelihoods of categories, or a noisy child's conditional and its value.
VirtualEvidence = (
    Likelihood | Mapping[Any, float] | tuple[ConditionalEmbedding | Conditional, PointsLike]
)


@dataclass(frozen=True, eq=False)
class Observed:
    """Evidence at a node: features (m, r) of values or distributions, in the cases observed (m,).

    ``points`` are the values themselves, those of the cases observed, or None for distributions;
    ``trust`` (m,) is NaN inside the sample.
    """

    features: Floats
    cases: Bools
    trust: Floats
    points: Points | None
    single: bool
    embedding: Embedding | Batch | None = None


def read_evidence(learned: Learned, evidence: Any) -> dict[Node, Observed]:
    """Evidence by node; what is missing (NaN, None) is left out."""
    if evidence is None:
        return {}
    if frame_kind(evidence) != "DataFrame" and not isinstance(evidence, Mapping):
        raise TypeError(
            f"evidence must be a mapping from nodes to values, got {type(evidence).__name__}"
        )
    found, numbers = {}, defaultdict(list)
    for node in evidence:
        check_node(learned, node, "evidence")
        domain, value = learned.domain_of(node), evidence[node]
        if isinstance(value, float | int | np.number) and not np.isnan(value):
            numbers[domain].append(node)
            continue
        one = _observed(domain, value, node)
        if one is not None:
            found[node] = one
    for domain, nodes in numbers.items():  # thousands of nodes may share a domain: read at once
        every = _observed(domain, np.array([evidence[node] for node in nodes]), nodes[0])
        assert every is not None
        for k, node in enumerate(nodes):
            own, case = slice(k, k + 1), np.ones(1, bool)
            features, trust = every.features[own], every.trust[own]
            found[node] = Observed(features, case, trust, take(every.points, own), True)
    return found


def check_node(learned: Learned, node: Node, what: str) -> None:
    """Raise a ValueError unless the graph has the node."""
    if node not in learned.graph.position:
        few = ", ".join(map(repr, learned.graph.nodes[:8]))
        raise ValueError(f"{what} names the node {node!r}, but the graph has {few} ...")


def _observed(domain: Domain, value: Any, node: Node) -> Observed | None:
    if isinstance(value, Embedding | Batch):
        features = domain.features(domain.kernel.points(value.points, str(node)))
        weights = np.atleast_2d(as_doubles(value.weights))
        single, inside = isinstance(value, Embedding), np.full(len(weights), np.nan)
        every = np.ones(len(weights), bool)
        return Observed(weights @ features, every, inside, None, single, value)
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return None
    values, single = query(value, domain.points, domain.names, by_name=domain.kernel.by_name)
    read = part(values, node)
    if not read.present.any():
        return None
    points = domain.kernel.points(read.seen, str(node))
    domain.kernel.check_pair(points, domain.points)
    features = np.zeros((len(read.present), domain.F.shape[1]))
    features[read.present] = domain.features(points)
    trust = np.full(len(features), np.nan)
    trust[read.present] = domain.trust(points)
    return Observed(features, read.present, trust, points, single)


def message(operator: Operator, features: Floats, trust: Floats) -> tuple[Floats, Floats]:
    """Evidence (m, q) of points at the target, and the shares (m,) that are not theirs."""
    found, share = operator.evidence(features), np.zeros(len(features))
    out = np.flatnonzero(~np.isnan(trust))
    if len(out):
        found[out], share[out] = operator.outside(features[out], trust[out])
    return found, share


def read_likelihoods(learned: Learned, virtual: Any) -> dict[Node, Floats]:
    """Likelihoods (m, q) on the points of each node's domain."""
    found = {}
    for node, given in ({} if virtual is None else virtual).items():
        check_node(learned, node, "virtual_evidence")
        domain = learned.domain_of(node)
        if isinstance(given, tuple) and len(given) == 2:
            values = _noisy_child(domain, *given, node)
        elif isinstance(given, Mapping):
            states = domain.points.tolist() if hasattr(domain.points, "tolist") else domain.points
            values = np.array([float(given.get(state, 0.0)) for state in states])
        elif callable(given):
            values = as_doubles(given(domain.points))
        else:
            raise TypeError(
                f"virtual evidence for {node!r} is a likelihood (a function of points), a mapping "
                "from categories to likelihoods, or (conditional embedding of a child, value of "
                f"the child); got {type(given).__name__}. Values belong in evidence="
            )
        q = domain.size
        if values.ndim not in (1, 2) or values.shape[-1] != q:
            values = values.reshape(q) if values.size == q else values
        if values.ndim not in (1, 2) or values.shape[-1] != q:
            raise ValueError(f"the likelihood of {node!r} must give {q} values, got {values.shape}")
        values = np.atleast_2d(values)
        if not (np.isfinite(values).all() and (values >= 0.0).all()):
            raise ValueError(f"the likelihood of {node!r} must be finite and not negative")
        if not (values > 0.0).any(axis=1).all():
            raise ValueError(f"the likelihood of {node!r} is zero at all of its {q} points")
        found[node] = values
    return found


def _noisy_child(
    domain: Domain, given: ConditionalEmbedding | Conditional, value: PointsLike, node: Node
) -> Floats:
    """p(value | x) / p(value) at the points of a domain, from pairs of x and the child."""
    cond = given if isinstance(given, Conditional) else given.conditional_
    parent, child = _domain(cond.inputs), _domain(cond.outputs)
    ridge = cond.operator if isinstance(cond.operator, float | str) else "loo"
    pairs = Relation(parent[0], child[0], parent[1], child[1], ridge)
    one = _observed(child[0], value, f"the child of {node!r}")
    if one is None or not one.cases.all():
        raise ValueError(f"the child of {node!r} has no value; leave it out")
    cond.inputs.kernel.check_pair(domain.points, parent[0].points)
    operator = pairs.operators[0].at(parent[0].features(domain.points))
    return np.maximum(message(operator, one.features, one.trust)[0], 0.0)


def _domain(variable: Variable) -> tuple[Domain, Any]:
    keep, code = distinct(variable.points)
    shares = np.bincount(code, minlength=len(keep)) / count(variable.points)
    return Domain(take(variable.points, keep), shares, variable.kernel), code
