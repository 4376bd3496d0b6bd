"""Where the values of a TOML text stand, for texts made line by line."""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from saps.frontend.mqtt.access.toml_lines import Place, TomlLines

TRICKY = ("[[rule]]", "a = 1", "# no", "it's", "]", '"', "\\", ",", "= {", '"""', "'''", "")

text = st.lists(st.sampled_from(TRICKY), max_size=3).map(" ".join)
basic = text.map(lambda t: '"' + t.replace("\\", "\\\\").replace('"', '\\"') + '"')
literal = text.filter(lambda t: "'" not in t).map(lambda t: f"'{t}'")
long_basic = st.lists(text, max_size=3).map(
    lambda lines: '"""' + "\n".join(lines).replace("\\", "\\\\").replace('"', '\\"') + '"""'
)
long_literal = st.lists(text.filter(lambda t: "'" not in t), max_size=3).map(
    lambda lines: f"'''{chr(10).join(lines)}'''"
)
strings = st.one_of(basic, literal, long_basic, long_literal)
values = strings | st.sampled_from(["1", "true", "-2.5e3", "1979-05-27T07:32:00Z", "{ a = 'x, y', b = [1, 2] }"])
comments = st.sampled_from(["", " ", ' # [ \' """ " ='])
gaps = st.lists(comments, max_size=2).map(lambda lines: "".join(line + "\n" for line in lines))


@st.composite
def arrays(draw: st.DrawFn) -> tuple[str, list[int]]:
    """An array, and the lines of its items, counted from its own first line as 0."""
    written, lines = "[", []
    for item in draw(st.lists(values, max_size=4)):
        written += draw(gaps)
        lines.append(written.count("\n"))
        written += item + draw(gaps) + ","
    return written + draw(gaps) + "]", lines


entries: st.SearchStrategy[tuple[str, list[int] | None]] = st.one_of(
    comments.map(lambda comment: (comment.strip(), None)),
    st.just(("[[rule]]", None)),
    values.map(lambda value: (value, [])),
    arrays(),
)


Entry = tuple[tuple[str, list[int] | None], str, str]


@given(st.lists(st.tuples(entries, st.sampled_from(["", "  ", "\t"]), comments), max_size=8))
def test_every_key_item_and_header_is_found_in_its_line(
    made: list[Entry],
) -> None:
    written, rules = "", []
    expected: dict[tuple[str, str, int], Place] = {}
    for number, ((value, items), indent, comment) in enumerate(made):
        line = written.count("\n") + 1
        if items is None:
            if value == "[[rule]]":
                rules.append(line)
            written += indent + value + "\n"
        else:
            table = ("rule", len(rules) - 1) if rules else ("", 0)
            expected[f"k{number}", *table] = Place(line, tuple(line + item for item in items))
            written += f"{indent}k{number} = {value}{comment}\n"
    tomllib.loads(written)
    found = TomlLines(written)
    assert {key: found.place(*key) for key in expected} == expected
    assert [found.table_line("rule", index) for index in range(len(rules) + 1)] == [*rules, None]
    assert found.place("other") is None
