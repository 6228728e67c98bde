"""How Sphinx makes the site of what `stage` has laid out; `tools/docs` runs both."""

project = "shardstream"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_title = "shardstream"
html_show_copyright = html_show_sphinx = html_copy_source = False
myst_heading_anchors = 4  # as code hosts make them
default_role = "py:obj"  # names in docstrings lead to what they name, where the reference has it
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures would show every private alias; docstrings say what there is to know
suppress_warnings = [
    "misc.highlighting_failure",  # console output that no lexer knows
]
