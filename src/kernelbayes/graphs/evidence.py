"""Evidence at single nodes: values, distributions, likelihoods, noisy children."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelbayes.arrays import as_doubles, frame_kind
from kernelbayes.embedding import Batch, Embedding
from kernelbayes.graphs.reading import Learned, distinct, part, with_blanks
from kernelbayes.graphs.relation import Domain, Operator, Relation
from kernelbayes.graphs.structure import Node
from kernelbayes.points import count, query, take
from kernelbayes.rules.cme import ConditionalEmbedding
from kernelbayes.rules.conditional import Conditional
from kernelbayes.rules.variable import Variable
from kernelbayes.types import Array, Bools, Floats, Points, PointsLike

Likelihood = Callable[[Points], Array]
# A function of points, likelihoods of categories, or a noisy child's conditional and its value.
VirtualEvidence = (
    Likelihood | Mapping[Any, float] | tuple[ConditionalEmbedding | Conditional, PointsLike]
)


@dataclass(frozen=True, eq=False)
class Seen:
    """Points observed at nodes of one domain; embeddings have weights (m, q), values have none."""

    points: Points
    weights: Floats | None = None
    _read: dict[Domain, tuple[Floats, Floats]] = field(default_factory=dict, init=False)

    def read(self, domain: Domain) -> tuple[Floats, Floats]:
        """Features (m, r) in a domain, and how far its sample supports the points (m,)."""
        if domain not in self._read:
            features = domain.features(self.points)
            if self.weights is None:
                self._read[domain] = features, domain.trust(self.points)
            else:
                inside = np.full(len(self.weights), np.nan)
                self._read[domain] = self.weights @ features, inside
        return self._read[domain]


@dataclass(frozen=True, eq=False)
class Observed:
    """Evidence at a node: ``rows`` of the observed points, and the ``cases`` (m,) that have it."""

    seen: Seen
    rows: slice
    cases: Bools
    single: bool
    embedding: Embedding | Batch | None = None

    @property
    def always(self) -> bool:
        """Whether the node is observed in all cases."""
        return self.single or bool(self.cases.all())

    @property
    def points(self) -> Points:
        """Values in the observed cases, if the evidence is not a distribution."""
        return take(self.seen.points, self.rows)

    def read(self, domain: Domain) -> tuple[Floats, Floats]:
        """Features (k, r) of the k cases observed, and their trust (k,), NaN inside the sample."""
        features, trust = self.seen.read(domain)
        return features[self.rows], trust[self.rows]


def read_all(nodes: Sequence[Observed], domain: Domain, cases: int) -> tuple[Floats, Floats]:
    """Features (k * cases, r) and trust (k * cases,) at k nodes that are observed in all cases."""
    if cases == 1 and all(one.seen is nodes[0].seen for one in nodes):  # thousands of pixels
        rows = [one.rows.start or 0 for one in nodes]
        features, trust = nodes[0].seen.read(domain)
        return features[rows], trust[rows]
    read = [one.read(domain) for one in nodes]
    phi = [np.broadcast_to(f, (cases, f.shape[1])) for f, _ in read]
    return np.concatenate(phi), np.concatenate([np.broadcast_to(t, cases) for _, t in read])


def read_evidence(learned: Learned, evidence: Any) -> dict[Node, Observed]:
    """Evidence by node, without missing values (NaN, None)."""
    if evidence is None:
        return {}
    evidence = _by_node(learned, evidence)
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
        case = np.ones(1, bool)
        for k, node in enumerate(nodes):
            found[node] = Observed(every.seen, slice(k, k + 1), case, True)
    return found


def _by_node(learned: Learned, evidence: Any) -> dict[Node, Any]:
    """Values by node. As in fit, a frame (or a row of one) may have columns of no node."""
    kind, nodes = frame_kind(evidence), learned.graph.position
    if kind is None and not isinstance(evidence, Mapping):
        raise TypeError(f"evidence must be a mapping from nodes, got {type(evidence).__name__}")
    names = list(evidence.keys() if kind != "DataFrame" else evidence.columns)
    free = {*names} - {*nodes}
    joined = {n: list(n) for n in nodes if free and isinstance(n, tuple) and free.issuperset(n)}
    read = {name for columns in joined.values() for name in columns}
    frame = kind == "DataFrame"
    found = {n: evidence[c] if frame else {k: evidence[k] for k in c} for n, c in joined.items()}
    own = [name for name in names if name in nodes or (kind is None and name not in read)]
    if names and not own and not joined:
        raise ValueError(f"evidence has no column of the graph's nodes, only {names}")
    return found | {name: evidence[name] for name in own}


def check_node(learned: Learned, node: Node, what: str) -> None:
    """Raise a ValueError unless the graph has the node."""
    if node not in learned.graph.position:
        few = ", ".join(map(repr, learned.graph.nodes[:8]))
        raise ValueError(f"{what} names the node {node!r}, which is not in the graph ({few} ...)")


def _observed(domain: Domain, value: Any, node: Node) -> Observed | None:
    if isinstance(value, Embedding | Batch):
        weights, single = np.atleast_2d(as_doubles(value.weights)), isinstance(value, Embedding)
        seen = Seen(domain.kernel.points(value.points, str(node)), weights)
        return Observed(seen, slice(None), np.ones(len(weights), bool), single, value)
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return None
    value = with_blanks(value)
    values, single = query(value, domain.points, domain.names, by_name=domain.kernel.by_name)
    read = part(values, node)
    if not read.present.any():
        return None
    points = domain.kernel.points(read.seen, str(node))
    domain.kernel.check_pair(points, domain.points)
    return Observed(Seen(points), slice(None), read.present, single)


def message(operator: Operator, features: Floats, trust: Floats) -> tuple[Floats, Floats]:
    """Evidence (m, q) at the target, and the shares (m,) filled in from the marginal."""
    found, share = operator.evidence(features), np.zeros(len(features))
    # Just beyond an outlier weights cancel, and the regression of a category may flip.
    out = np.flatnonzero(~np.isnan(trust) | operator.cancels(features))
    if len(out):
        found[out], share[out] = operator.outside(features[out], np.nan_to_num(trust[out], nan=1.0))
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
            if not domain.kernel.is_categorical:
                raise TypeError(f"the likelihood of {node!r} is a function: it has no categories")
            states = domain.points.tolist() if hasattr(domain.points, "tolist") else domain.points
            unknown = sorted(map(repr, set(given) - set(states)))
            if unknown:
                raise ValueError(f"{node!r} has no categories {', '.join(unknown)}, only {states}")
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
        values = values.reshape(1, q) if values.size == q else np.atleast_2d(values)
        if values.ndim != 2 or values.shape[1] != q:
            raise ValueError(f"the likelihood of {node!r} must give {q} values, got {values.shape}")
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
    return np.maximum(message(operator, *one.read(child[0]))[0], 0.0)


def _domain(variable: Variable) -> tuple[Domain, Any]:
    keep, code = distinct(variable.points)
    shares = np.bincount(code, minlength=len(keep)) / count(variable.points)
    return Domain(take(variable.points, keep), shares, variable.kernel), code
