"""Read the user's data: one sample for each node, pairs for each edge."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import as_array, frame_kind, to_numpy
from kernelbayes.graphs.linear import Linear
from kernelbayes.graphs.relation import Domain, Relation
from kernelbayes.graphs.structure import Graph, GraphLike, Node, Templates, chow_liu, read_graph
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.base import as_kernel
from kernelbayes.kernels.default import default_kernel
from kernelbayes.objects import blanks
from kernelbayes.points import column_names, concatenate, count, take
from kernelbayes.rules.conditional import Ridge
from kernelbayes.types import Bools, Ints, Names, Points, PointsLike, Rng

# One for all, by node, or by edge (or template): one for both of its ends, or one for each.
Kernels = Kernel | Mapping[Any, Kernel | tuple[Kernel, Kernel]] | None

Ends = tuple[Hashable, Hashable]  # names of the parts at the two ends of an edge


@dataclass(frozen=True, eq=False)
class Part:
    """Points of one node, or of one end of a relation, and which of them are present."""

    values: PointsLike
    present: Bools  # (n,)
    node: Node = None  # whose points they are, if its name is not the part's

    @property
    def seen(self) -> PointsLike:
        """Values that are present."""
        return rows_of(self.values, np.flatnonzero(self.present))


def part(values: PointsLike, name: Hashable) -> Part:
    """Read points in which NaN, None and masked entries are missing."""
    if isinstance(values, Mapping) or frame_kind(values) == "DataFrame":
        columns = {key: part(values[key], key) for key in values}
        count({key: one.present for key, one in columns.items()})  # they are aligned
        present = np.logical_and.reduce([one.present for one in columns.values()])
        if frame_kind(values) == "DataFrame":
            return Part(values, present)
        return Part({key: one.values for key, one in columns.items()}, present)
    array = as_array(with_blanks(values), str(name))
    if is_array_api_obj(array) and array.ndim > 0:
        if array.shape[0] == 0:
            raise ValueError(f"{name} is empty; at least one point is needed")
        found = to_numpy(array)
        return Part(array, np.asarray(~blanks(found.reshape(len(found), -1)).any(axis=1)))
    if not isinstance(values, Iterable):
        raise TypeError(f"{name} must hold one value for each case, got {values!r}")
    return Part(list(values), np.array([value is not None for value in values]))


def with_blanks(values: PointsLike) -> PointsLike:
    """Images or vectors in a list of which some are None, with NaN in their place."""
    seen = [value for value in values if value is not None] if isinstance(values, list) else []
    shape = np.shape(seen[0]) if 0 < len(seen) < len(values) else ()
    return [np.full(shape, np.nan) if v is None else v for v in values] if shape else values


def rows_of(values: PointsLike, rows: Ints) -> PointsLike:
    """Rows of unchecked points, which may be a frame."""
    if frame_kind(values) == "DataFrame":
        return values.iloc[rows] if hasattr(values, "iloc") else values[rows]
    return take(values, rows)


def distinct(points: Points) -> tuple[Ints, Ints]:
    """Positions (q,) of distinct points, and for each point (n,) the one it equals."""
    n = count(points)
    if isinstance(points, Mapping):
        codes = np.column_stack([distinct(some)[1] for some in points.values()])
    elif is_array_api_obj(points):
        codes = to_numpy(points).reshape(n, -1)
    else:
        codes = np.array([repr(value) for value in points])[:, None]
    if codes.dtype.kind == "O":
        codes = np.column_stack([np.unique(c.astype(str), return_inverse=True)[1] for c in codes.T])
    if codes.shape[1] == 1:
        found = np.unique(codes[:, 0], return_index=True, return_inverse=True)
    else:
        found = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    return found[1], found[2].reshape(-1)


@dataclass(frozen=True, eq=False)
class Learned:
    """A graph with the sample of each node and the pairs of each edge."""

    graph: Graph
    domains: tuple[Domain, ...]
    relations: tuple[Relation, ...]
    linear: Linear | None = None  # beside a learned tree

    def domain_of(self, node: Node) -> Domain:
        """Sample of a node."""
        return self.domains[int(self.graph.domain[self.graph.position[node]])]

    @cached_property
    def sides(self) -> Ints:
        """Numbers (R, 2) of the domains at the two ends of each relation."""
        first = np.unique(self.graph.template, return_index=True)[1]
        return self.graph.domain[self.graph.ends[first]].reshape(-1, 2)


def learn(
    graph: GraphLike, templates: Templates | None, data: Any, kernels: Kernels, ridge: Ridge,
    rank: int | None, rng: Rng,
) -> Learned:  # fmt: skip
    """Read graph and data: rows of nodes, or pairs of edges."""
    if frame_kind(data) != "DataFrame" and not isinstance(data, Mapping):
        raise TypeError(
            "data must be a frame whose columns are the nodes, a mapping from nodes to points, or "
            f"a mapping from edges (or templates) to pairs of points, got {type(data).__name__}"
        )
    learned_tree = isinstance(graph, str) and graph == "tree"
    if learned_tree:
        if templates is not None:
            raise ValueError('templates are for a given graph, not for graph="tree"')
        columns = {node: part(data[node], node) for node in data}
        plain = Graph(tuple(columns), (), (), ())
        domains, rows = _domains(plain, columns, kernels, rank, rng)
        found = {node: domain.F[rows[node]] for node, domain in zip(columns, domains, strict=True)}
        graph = chow_liu(found, {node: one.present for node, one in columns.items()})
    structure = read_graph(graph, templates, list(data) if learned_tree else [])
    named = kernels if isinstance(kernels, Mapping) else {}
    known = {*structure.position, *structure.names, *((v, u) for u, v in structure.edges)}
    unknown = [key for key in named if key not in known]
    if unknown:
        raise ValueError(f"kernels names {unknown}, which are not nodes, edges or templates")
    parts, ends = (_from_pairs if _is_pairs(structure, data) else _from_rows)(structure, data)
    domains, rows = _domains(structure, parts, kernels, rank, rng)
    relations = []
    for number, name in enumerate(structure.names):
        i, j = (np.concatenate([rows[p[k]] for p in ends[number]]) for k in (0, 1))
        i, j = i[(i >= 0) & (j >= 0)], j[(i >= 0) & (j >= 0)]  # -1 is missing
        edge = structure.edges[structure.template.index(number)]
        first, second = (domains[structure.domain[structure.position[node]]] for node in edge)
        relations.append(_relation(name, first, second, i, j, ridge, kernels))
    return Learned(structure, domains, tuple(relations))


def _is_pairs(graph: Graph, data: Any) -> bool:
    """Whether data map edges or templates to pairs, rather than nodes to points."""
    if not isinstance(data, Mapping) or all(key in graph.position for key in data):
        return False
    known = {*graph.names, *((v, u) for u, v in graph.edges)}
    return all(key in known for key in data)


def _from_rows(graph: Graph, data: Any) -> tuple[dict[Any, Part], list[list[Ends]]]:
    """Parts by node, and for each relation the pairs of parts at the ends of its edges."""
    columns: dict[Any, Part] = {node: _column(data, node) for node in graph.nodes}
    sizes = {node: len(one.present) for node, one in columns.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(
            f"nodes have different numbers of rows, {sizes}; rows are joint observations, with NaN "
            "or None where a node was not observed. For separate samples give pairs by edge: "
            "fit({('a', 'b'): (points_a, points_b), ...})"
        )
    ends: list[list[Ends]] = [[] for _ in graph.names]
    for edge, number in zip(graph.edges, graph.template, strict=True):
        ends[number].append(edge)
    return columns, ends


def _from_pairs(graph: Graph, data: Any) -> tuple[dict[Any, Part], list[list[Ends]]]:
    """Parts by relation and side, and for each relation its one pair of parts."""
    turned: dict[Any, Any] = {n: n[::-1] for n in graph.names if isinstance(n, tuple)}
    missing = [name for name in graph.names if name not in data and turned.get(name) not in data]
    if missing:
        raise ValueError(f"no pairs are given for {missing}; each edge or template needs some")
    sides: dict[Any, Part] = {}
    for number, name in enumerate(graph.names):
        values = data[name] if name in data else tuple(data[turned[name]])[::-1]
        if len(values) != 2:
            raise ValueError(f"the pairs of {name!r} are (points, points), got {len(values)} parts")
        both = [part(some, name) for some in values]
        sizes = [len(one.present) for one in both]
        if sizes[0] != sizes[1]:
            raise ValueError(f"the points of {name!r} must be pairs, got {sizes} points")
        present = both[0].present & both[1].present
        for side, node in enumerate(graph.edges[graph.template.index(number)]):
            sides[number, side] = Part(both[side].values, present, node)
    return sides, [[((number, 0), (number, 1))] for number in range(len(graph.names))]


def edge_kernels(kernels: Kernels, name: Hashable) -> tuple[Kernel, Kernel] | None:
    """Kernels given for the two ends of an edge or template, if any."""
    if not isinstance(kernels, Mapping):
        return None
    turned = name[::-1] if isinstance(name, tuple) and len(name) == 2 else None
    given = kernels.get(name, kernels.get(turned))
    if given is None:
        return None
    first, second = given if isinstance(given, tuple) else (given, given)
    if name not in kernels:  # the edge was given in the other direction
        first, second = second, first
    return as_kernel(first, f"the kernel of {name!r}"), as_kernel(second, f"that of {name!r}")


def _relation(
    name: Hashable, first: Domain, second: Domain, i: Ints, j: Ints, ridge: Ridge,
    kernels: Kernels,
) -> Relation:  # fmt: skip
    if len(i) < 2:
        raise ValueError(
            f"the edge {name!r} has {len(i)} complete pairs and needs at least two; give more rows "
            "in which both nodes are observed"
        )
    own = edge_kernels(kernels, name)
    if own is not None:
        first, second = replace(first, kernel=own[0]), replace(second, kernel=own[1])
    return Relation(first, second, i, j, ridge)


def _column(data: Any, node: Node) -> Part:
    """Points of a node: a column, several (for a tuple of names), or an entry of a mapping."""
    names = list(data.columns) if frame_kind(data) == "DataFrame" else list(data)
    if node in names:
        return part(data[node], node)
    if isinstance(node, tuple) and all(name in names for name in node):
        if frame_kind(data) == "DataFrame":
            return part(data[list(node)], node)
        return part({name: data[name] for name in node}, node)
    raise ValueError(f"the graph has a node {node!r}, but the data have only {names}")


def _domains(
    graph: Graph, parts: Mapping[Any, Part], kernels: Kernels, rank: int | None, rng: Rng
) -> tuple[tuple[Domain, ...], dict[Any, Ints]]:
    """Sample of each domain, and the positions (n,) in it of each part, -1 where it is missing."""
    nodes_of = {key: key if one.node is None else one.node for key, one in parts.items()}
    where = {key: graph.domain[graph.position[node]] for key, node in nodes_of.items()}
    rows: dict[Any, Ints] = {}
    domains = []
    for number in range(int(graph.domain.max()) + 1):
        own = [key for key in parts if where[key] == number]
        nodes = [n for n, d in zip(graph.nodes, graph.domain, strict=True) if d == number]
        seen = [parts[key].seen for key in own]
        sizes = [int(parts[key].present.sum()) for key in own]
        if not sum(sizes):
            raise ValueError(f"the node {nodes[0]!r} has no observations in the data; leave it out")
        kernel = _kernel(kernels, nodes, seen)
        names: Names = column_names(seen[0]) if frame_kind(seen[0]) == "DataFrame" else None
        points = None
        for some, size in zip(seen, sizes, strict=True):
            if size:
                checked = kernel.points(some, str(nodes[0]))
                points = checked if points is None else concatenate(points, checked)
        keep, code = distinct(points)
        shares = np.bincount(code, minlength=len(keep)) / len(code)
        used: Rng = 0 if rank is None else rng
        domains.append(Domain(take(points, keep), shares, kernel, names, rank, used))
        ends = np.cumsum(sizes)[:-1]
        for key, codes in zip(own, np.split(code, ends), strict=True):
            rows[key] = np.full(len(parts[key].present), -1)
            rows[key][parts[key].present] = codes
    return tuple(domains), rows


def _kernel(kernels: Kernels, nodes: list[Node], seen: list[PointsLike]) -> Kernel:
    """Kernel of a domain: the one given for any of its nodes, or the default."""
    if isinstance(kernels, Mapping):
        found = [kernels[node] for node in nodes if node in kernels]
        if found:
            return as_kernel(found[0], f"the kernel of {nodes[0]!r}")
    elif kernels is not None:
        return as_kernel(kernels, "kernels")
    biggest = max(seen, key=count)
    return default_kernel(biggest, str(nodes[0]))
