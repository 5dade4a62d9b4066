"""Only gram/ factors matrices and solves with them; everybody else calls gram.lapack."""

import ast
from pathlib import Path

import pytest

import kernelbayes

SOURCE = Path(kernelbayes.__file__).parent
# Neither factorisations of a sample's matrix nor solves: lengths, diagonals, signs of rotations.
HARMLESS = {"norm", "vector_norm", "matrix_norm", "diagonal", "trace", "det", "LinAlgError"}
# Kernels come before gram; the rotation closest to a mean is of one small matrix, not of a sample.
ALLOWED = {"kernels/curved.py": {"svd"}}


def library_calls(source):
    """Names used of a linalg module: np.linalg.eigh, scipy.linalg.blas.dsyrk, an import from it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).split(".")[-1] == "linalg":
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and "linalg" in (node.module or "").split("."):
            found.update(alias.name for alias in node.names)
    return found - HARMLESS


FILES = {str(p.relative_to(SOURCE)): p for p in sorted(SOURCE.rglob("*.py"))}


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith("gram/")])
def test_only_gram_factors_and_solves(name):
    calls = library_calls(FILES[name].read_text()) - ALLOWED.get(name, set())
    assert not calls, f"{name} calls linalg.{sorted(calls)}; use kernelbayes.gram.lapack"


def test_within_gram_the_library_is_called_in_two_files():
    callers = {n for n, p in FILES.items() if n[:5] == "gram/" and library_calls(p.read_text())}
    # Solving with a factor that is there stands beside the solvers, so that they are one file.
    assert callers == {"gram/lapack.py", "gram/solvers.py"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("np.linalg.eigh(A)", {"eigh"}),
        ("xp.linalg.solve(A, b)", {"solve"}),
        ("namespace(A).linalg.cholesky(A)", {"cholesky"}),
        ("scipy.linalg.blas.dsyrk(1.0, A)", {"blas"}),
        ("from numpy.linalg import svd, norm", {"svd"}),
        ("np.linalg.norm(x)", set()),
    ],
)
def test_calls_are_recognised(source, expected):
    assert library_calls(source) == expected
