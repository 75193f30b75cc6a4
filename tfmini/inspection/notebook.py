"""Shows a page of the inspector in a notebook: in an iframe that may run scripts and nothing else."""

from __future__ import annotations

from html import escape

HEIGHT_PX = 560


def framed(page: str, title: str) -> str:
    """HTML for ``_repr_html_`` with a whole page in it.

    The page is the ``srcdoc`` of a sandboxed iframe. So its styles and scripts do not meet those of the notebook, it
    cannot read the notebook's origin, and it loads nothing. It also runs inside JupyterLab's own sandbox, which allows
    scripts alone.
    """
    return (
        f'<iframe title="{escape(title)}" sandbox="allow-scripts" srcdoc="{escape(page)}"'
        f' style="width: 100%; height: {HEIGHT_PX}px; border: 1px solid #ccc" loading="lazy"></iframe>'
    )
