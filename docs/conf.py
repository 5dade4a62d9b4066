# Sphinx settings; `make docs` builds with warnings as errors.
import kernelbayes

project = "kernelbayes"
author = "The kernelbayes developers"
copyright = author
release = version = kernelbayes.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "kernelbayes"
html_static_path: list[str] = []
# Docstrings inherited from scikit-learn refer to labels of its own documentation.
suppress_warnings = ["ref.ref", "ref.term"]

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

napoleon_google_docstring = False
napoleon_numpy_docstring = True
# One entry for several attributes, "kernel_x_, kernel_z_ : Kernel", is one line of a list.
napoleon_custom_sections = [("Attributes", "params_style")]
napoleon_use_rtype = False
napoleon_use_param = False  # types are words here, such as "points (n, ...)", not references
autosummary_generate = True
autodoc_typehints = "none"  # the numpydoc sections say it in words
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "inherited-members": True}

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": "/plot_",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_signature": False,
    "write_computation_times": False,
}
