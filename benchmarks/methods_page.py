"""docs/methods.md, a section for each method, from the docstrings of the methods and of their settings.

python benchmarks/methods_page.py writes it.
"""

import ast
import dataclasses
import inspect
import textwrap
from pathlib import Path

from normatch.methods import Method, methods
from normatch.methods.parts.weak_to_strong import WeakToStrong, WeakToStrongSettings
from normatch.text import markdown

PAGE = Path(__file__).parent.parent / "docs" / "methods.md"

HEAD = """# Methods

What each method minimises, and its settings. `normatch list methods` lists them, `normatch train RECIPE --method NAME`
trains one, and `--help` behind that shows its settings as flags (`--settings.…`). How a run is trained, and where
NorMatch departs from its paper and its published code, is on [another page](protocol.md). This page is made from the
docstrings in `src/normatch/methods/`, a file each, by `python benchmarks/methods_page.py`.

Notation: x labelled images, u unlabelled ones; B labelled and μB unlabelled images in a step (64 and 448); z the
backbone's features; p the softmax head (p_d where there is a flow, p_n); H the cross-entropy; weak and strong the views
of an image. Where a method says nothing else, L_x = 1/B Σ H(y, p(x)) on weak views.
"""

TEMPLATE = """## Pseudo-labels, and consensus for all of them

Most methods share one template: predict on weak views, weigh and sharpen these pseudo-labels, train strong views on
them. A flow's consensus (NCUE, eq. 3 of NorMatch) is a part of it: `--settings.consensus nfc` multiplies the weights of
any of these methods by τ, and trains the flow as NorMatch does. These settings are common to them, with the defaults of
the template:
"""


def settings_table(settings: type, inherited: type | None = None) -> str:
    """The settings that a dataclass has of its own, or with another default than the one that it inherits from."""
    texts = {name: text for kind in reversed(settings.__mro__[:-1]) for name, text in field_docstrings(kind).items()}
    known = {f.name: f.default for f in dataclasses.fields(inherited)} if inherited else {}
    rows = [
        [f"`{f.name}`", f"`{f.default}`", " ".join(texts.get(f.name, "").split())]
        for f in dataclasses.fields(settings)
        if f.name not in known or known[f.name] != f.default
    ]
    return f"\n{markdown([['setting', 'default', ''], *rows])}\n" if rows else ""


def field_docstrings(kind: type) -> dict[str, str]:
    """The strings that stand below the fields of a class."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for field, after in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            found[field.target.id] = str(ast.literal_eval(after.value))
    return found


def section(name: str, method: type[Method]) -> str:
    kind = "" if method.capturable else " Its step is not captured as a graph."
    title = f"*{method.paper}.* " if method.paper else ""
    on_template = issubclass(method, WeakToStrong)
    settings = settings_table(method.Settings, WeakToStrongSettings if on_template else None)
    return f"## {name}\n\n{title}{inspect.getdoc(method)}{kind}\n{settings}"


def page() -> str:
    """NorMatch, then the others by year."""
    order = sorted(methods.items(), key=lambda item: (item[0] != "normatch", item[1].paper[-4:], item[0]))
    sections = [section(name, method) for name, method in order]
    return "\n".join([HEAD, TEMPLATE + settings_table(WeakToStrongSettings), *sections])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
