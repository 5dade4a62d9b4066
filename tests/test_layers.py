"""Each module imports only from modules above it in the layout of the design."""

import ast
from pathlib import Path

import pytest

import kernelbayes

SOURCE = Path(kernelbayes.__file__).parent
LAYERS = [
    *(
        "types",
        "objects",
        "arrays",
        "points",
        "tables",
        "kernels",
        "gram",
        "herding",
        "plot",
        "embedding",
        "compression",
        "scale",
    ),
    *("rules", "estimators", "select", "learned"),
    *("filters", "graphs"),
    *("likelihood_free", "compare", "files", "report", "laws", "demo", "cli", "__main__"),
]
FILES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))


def layer_of(path):
    """Top-level module of a file: kernels/base.py belongs to kernels."""
    return path.parts[0].removesuffix(".py")


def imported_modules(tree):
    """Dotted names of the modules of this package that a file imports at run time."""
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            nodes += node.orelse
            continue
        nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] == "kernelbayes")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written in full, from kernelbayes. ..."
            if node.module == "kernelbayes":  # the version is a constant, not a layer
                names = [a.name for a in node.names if a.name != "__version__"]
                yield from (f"kernelbayes.{name}" for name in names)
            elif node.module and node.module.startswith("kernelbayes."):
                yield node.module


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_point_upwards(path):
    layer = layer_of(path)
    if layer == "__init__":  # the flat public API imports everything
        return
    assert layer in LAYERS, f"{path} is not in the layout: add its layer here and in the design"
    allowed = LAYERS[: LAYERS.index(layer)]
    for module in imported_modules(ast.parse((SOURCE / path).read_text())):
        other = module.split(".")[1] if "." in module else "kernelbayes"
        assert other in allowed or (other == layer and len(path.parts) > 1), (
            f"{path} imports {module}, which is not above it"
        )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import numpy", []),
        ("import kernelbayes.arrays", ["kernelbayes.arrays"]),
        ("from kernelbayes.gram import Dense", ["kernelbayes.gram"]),
        ("from kernelbayes import laws, embed", ["kernelbayes.laws", "kernelbayes.embed"]),
        ("from kernelbayes import __version__", []),
        ("def f():\n    from kernelbayes.rules import g", ["kernelbayes.rules"]),
        ("if TYPE_CHECKING:\n    from kernelbayes.rules import g", []),
    ],
)
def test_the_parser_sees_imports_everywhere(source, expected):
    assert list(imported_modules(ast.parse(source))) == expected
