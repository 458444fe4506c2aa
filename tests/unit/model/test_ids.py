"""Names, identifiers and digests."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgepanda.errors import EdgePandaError
from edgepanda.model.ids import check_name, digest, is_capability, is_name, is_task_id, new_id

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_ids_are_task_ids_differ_and_sort_by_age(monkeypatch):
    made = [new_id() for _ in range(500)]
    assert len(set(made)) == 500
    assert all(len(i) == 20 and is_task_id(i) for i in made)
    monkeypatch.setattr("edgepanda.model.ids.time.time_ns", lambda: 4_000_000_000 * 10**9)
    assert max(made) < new_id()


@pytest.mark.parametrize("text", ["a", "pi-4", "0", "x" * 32])
def test_names(text):
    assert is_name(text)
    assert check_name(text, "here") == text


@pytest.mark.parametrize("text", ["", "A", "a_b", "a.b", "a/b", "a+", "#", "ä", "x" * 33, "a\n", " a"])
def test_what_is_no_name_is_refused_with_its_place(text):
    assert not is_name(text)
    with pytest.raises(EdgePandaError) as caught:
        check_name(text, "node.name")
    assert (caught.value.code, caught.value.where) == ("invalid_name", "node.name")


@pytest.mark.parametrize("text", ["servo.move", "build.heavy", "a.b.c.d", "x_1.y-2"])
def test_capabilities(text):
    assert is_capability(text)


@pytest.mark.parametrize("text", ["servo", "servo.", ".move", "Servo.move", "a.b.c.d.e", "a b.c", "servo.move\n"])
def test_what_is_no_capability(text):
    assert not is_capability(text)


@pytest.mark.parametrize("text", ["short", "UPPERCASE", "with space", "x" * 41, "a/b/c/d/e"])
def test_what_is_no_task_id(text):
    assert not is_task_id(text)


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.text(), JSON, min_size=2, max_size=5))
def test_a_digest_does_not_depend_on_the_order_of_members(value):
    assert digest(value) == digest(dict(reversed(value.items())))


@settings(deadline=None, max_examples=50)
@given(JSON, JSON)
def test_different_values_have_different_digests(one, other):
    if repr(one) != repr(other) and one != other:
        assert digest(one) != digest(other)
