"""Tables as text can be read back."""

from hypothesis import given
from hypothesis import strategies as st

from normatch.text import aligned, markdown

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
