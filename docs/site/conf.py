"""The settings of Sphinx for the site that `make docs` builds (see `assemble`)."""

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

from tfmini._version import __version__

project = "tfmini"
author = "tfmini contributors"
copyright = author
release = version = __version__

extensions = ["myst_nb", "sphinx_click"]
default_role = "py:obj"  # `tf.nn.relu` in a docstring becomes a link if it is the name of an entry
add_function_parentheses = False
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
highlight_language = "none"

myst_heading_anchors = 4
nb_execution_mode = "off"

html_theme = "pydata_sphinx_theme"
html_title = f"tfmini {release}"
html_theme_options = {
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": False,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
}
html_show_sourcelink = False
suppress_warnings = ["ref.python"]  # a short name in a docstring may fit entries of several namespaces

_OF_PYTHON = {"None", "bool", "int", "float", "str", "bytes", "list", "dict", "tuple", "set", "object", "type"}


def setup(app: Sphinx) -> None:
    """Registers what the site does beyond the extensions."""
    app.connect("doctree-read", _unlink_builtins)


def _unlink_builtins(app: Sphinx, doctree: nodes.document) -> None:
    """A type in a signature is Python's: without this, ``bool`` would lead to ``tf.bool`` and ``None`` to a raw op."""
    for signature in doctree.findall(addnodes.desc_signature):
        for link in list(signature.findall(addnodes.pending_xref)):
            if link["reftarget"] in _OF_PYTHON:
                link.replace_self(link.children)
