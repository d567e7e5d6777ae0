"""Tables as text can be read back."""

import os
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from normatch.text import aligned, markdown, on_one_line

words = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters="|"), max_size=6)
tables = st.integers(1, 5).flatmap(
    lambda columns: st.lists(st.lists(words, min_size=columns, max_size=columns), min_size=1, max_size=5)
)


@given(tables)
def test_columns_begin_below_each_other(rows: list[list[str]]) -> None:
    lines = aligned(rows)
    assert [line.split() for line in lines] == [[word for word in row if word] for row in rows]
    start = 0
    for column in zip(*rows, strict=True):
        assert [line[start : start + len(word)] for line, word in zip(lines, column, strict=True)] == list(column)
        start += max(map(len, column)) + 2


@given(tables)
def test_markdown_has_a_cell_for_each_word(rows: list[list[str]]) -> None:
    head, rule, *others = ([cell.strip() for cell in line.split("|")[1:-1]] for line in markdown(rows).splitlines())
    assert [head, *others] == rows
    assert rule == ["---"] * len(rows[0])


@given(st.text(), st.binary(max_size=20))
def test_no_name_controls_a_terminal_or_cannot_be_printed(text: str, name: bytes) -> None:
    for shown in (on_one_line(text), on_one_line(os.fsdecode(name))):
        shown.encode()
        assert not any(unicodedata.category(c) in ("Cc", "Cs") or c in "\u202e\u2066" for c in shown)
    assert on_one_line("\x1b[2J é×\n\u202e") == "\\x1b[2J é×\\n\\u202e"
