"""No name controls a terminal; the other functions have their examples."""

import os
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from normatch.text import on_one_line


@given(st.text(), st.binary(max_size=20))
def test_no_name_controls_a_terminal_or_cannot_be_printed(text: str, name: bytes) -> None:
    for shown in (on_one_line(text), on_one_line(os.fsdecode(name))):
        shown.encode()
        assert not any(unicodedata.category(c) in ("Cc", "Cs") or c in "\u202e\u2066" for c in shown)
    assert on_one_line("\x1b[2J é×\n\u202e") == "\\x1b[2J é×\\n\\u202e"
