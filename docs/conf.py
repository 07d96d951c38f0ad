"""Sphinx: the site is made of these pages (`make docs`), and of reference pages made from the code."""

import sys
from pathlib import Path

# ruff: noqa: E402
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "src")]

import chinese
import gallery
import reference
import search
import sphinx.search

import qkv

reference.write(Path(__file__).parent / "reference", claims=gallery.gallery_page())
chinese.write()

project, author, release = "qkv", "the qkv developers", qkv.__version__
copyright = author
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["_build", "zh/tutorials/*.md"]  # of the Chinese tutorials, the notebooks are read

# Pages are also read where there is no Sphinx: plain Markdown, links to files, anchors as GitHub makes them.
myst_enable_extensions = []  # no formulas: the scripts that draw them come from the network
myst_heading_anchors = 4
nb_execution_mode = "off"  # notebooks hold the outputs of a full run; tests execute them at tiny size
suppress_warnings = ["myst.header"]  # pages with several parts have several titles
autodoc_member_order = "bysource"
autodoc_typehints = "signature"

sphinx.search.languages["en"] = search.SearchBoth

highlight_language = "none"  # most blocks are commands

html_theme = "furo"
html_title = "qkv"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = html_show_sphinx = False
html_show_search_summary = False  # a page that is opened from a disk may not read others
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#3451b2", "color-brand-content": "#3451b2"},
    "dark_css_variables": {"color-brand-primary": "#9eb1ff", "color-brand-content": "#9eb1ff"},
}
copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True


def setup(app):
    """Mark Chinese pages as Chinese, and link each page with the one in the other language, where there is one."""

    def set_language(app, pagename, templatename, context, doctree):
        context["language"] = "zh-Hans" if pagename.startswith("zh/") else "en"
        other = chinese.other_language(pagename)
        if other in app.env.found_docs:
            language, name = ("en", "English") if pagename.startswith("zh/") else ("zh-Hans", "中文")
            link = f'<a href="{app.builder.get_relative_uri(pagename, other)}" lang="{language}" hreflang="{language}">{name}</a>'
            context["body"] = f'<p class="other-language">{link}</p>{context["body"]}'

    app.connect("html-page-context", set_language)
