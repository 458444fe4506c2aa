"""The hash chain: what it binds, and that every kind of damage is found where it is."""

from __future__ import annotations

import hashlib
import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from edgepanda.coordinator import chain
from edgepanda.coordinator.chain import Link
from edgepanda.model.head import Head

LEDGER = "00112233445566778899aabbccddeeff"

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
facts = st.tuples(
    st.integers(0, 2**45), texts, st.none() | texts, st.none() | st.integers(0, 99), st.binary(max_size=4)
)


def build(rows: list[tuple[int, str, str | None, int | None, bytes]]) -> list[Link]:
    value = chain.genesis(LEDGER)
    links = []
    for seq, (at, kind, task, attempt, payload) in enumerate(rows, 1):
        digest = chain.digest(payload)
        value = chain.link(value, seq, at, kind, task, attempt, digest)
        links.append(Link(seq, at, kind, task, attempt, digest, value))
    return links


def head(links: list[Link]) -> Head:
    return Head(LEDGER, links[-1].seq, links[-1].hash)


def codes(links: list[Link], *witnesses: Head) -> list[tuple[str, int]]:
    return [(problem.code, problem.seq) for problem in chain.verify(links, LEDGER, witnesses).problems]


chains = st.lists(facts, min_size=1, max_size=8).map(build)


@given(facts)
def test_a_link_can_be_computed_with_any_json(row: tuple[int, str, str | None, int | None, bytes]) -> None:
    link = build([row])[0]
    start = hashlib.sha256(b"edgepanda-ledger-v1\0" + LEDGER.encode()).hexdigest()
    array = [start, 1, link.at, link.kind, link.task, link.attempt, hashlib.sha256(row[4]).hexdigest()]
    text = json.dumps(array, separators=(",", ":"), ensure_ascii=False)
    assert link.hash == hashlib.sha256(text.encode()).hexdigest()


@given(chains)
def test_a_whole_chain_has_no_problem(links: list[Link]) -> None:
    report = chain.verify(links, LEDGER, [Head(LEDGER, 0, chain.genesis(LEDGER)), head(links)])
    assert (report.height, report.hash, report.problems) == (len(links), links[-1].hash, [])


@given(chains, st.data())
def test_a_changed_member_is_found_where_it_is(links: list[Link], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(links) - 1))
    member = data.draw(st.sampled_from(["at", "kind", "task", "attempt", "digest"]))
    old = getattr(links[place], member)
    new = old + 1 if isinstance(old, int) else (old or "") + "x"
    links[place] = msgspec.structs.replace(links[place], **{member: new})
    assert codes(links) == [("chain_changed", place + 1)]


@given(st.lists(facts, min_size=2, max_size=8), st.data())
def test_exchanged_links_are_found(
    rows: list[tuple[int, str, str | None, int | None, bytes]], data: st.DataObject
) -> None:
    links = build(rows)
    first = data.draw(st.integers(0, len(links) - 2))
    second = data.draw(st.integers(first + 1, len(links) - 1))
    links[first], links[second] = links[second], links[first]
    assert "chain_reordered" in [code for code, _ in codes(links)]
    renumbered = [msgspec.structs.replace(link, seq=seq) for seq, link in enumerate(links, 1)]
    assert ("chain_changed", first + 1) in codes(renumbered)


@given(st.lists(facts, min_size=2, max_size=8), st.data())
def test_a_missing_link_is_found(
    rows: list[tuple[int, str, str | None, int | None, bytes]], data: st.DataObject
) -> None:
    links = build(rows)
    place = data.draw(st.integers(0, len(links) - 2))
    del links[place]
    assert codes(links) == [("chain_missing", place + 1)]


@given(chains, st.data())
def test_a_cut_tail_is_found_by_whoever_saw_it_and_by_nobody_else(links: list[Link], data: st.DataObject) -> None:
    kept = data.draw(st.integers(0, len(links) - 1))
    seen = data.draw(st.integers(kept + 1, len(links)))
    witness = Head(LEDGER, seen, links[seen - 1].hash)
    assert codes(links[:kept], witness) == [("chain_shortened", seen)]
    assert codes(links[:kept]) == []


@given(st.lists(facts, min_size=1, max_size=8), st.data())
def test_a_chain_that_was_made_again_is_found_by_a_witness(
    rows: list[tuple[int, str, str | None, int | None, bytes]], data: st.DataObject
) -> None:
    witness = head(build(rows))
    place = data.draw(st.integers(0, len(rows) - 1))
    at, kind, *rest = rows[place]
    rows[place] = (at, kind + "x", *rest)
    forged = build(rows)
    assert codes(forged) == []
    assert codes(forged, witness) == [("chain_rewritten", len(rows))]


def test_a_witness_of_another_ledger_or_of_a_gap_is_said() -> None:
    links = build([(1, "a", None, None, b""), (2, "b", None, None, b""), (3, "c", None, None, b"")])
    assert codes(links, Head("other", 1, "00")) == [("chain_foreign", 1)]
    witness = Head(LEDGER, 2, links[1].hash)
    assert codes([links[0], links[2]], witness) == [("chain_missing", 2), ("chain_missing", 2)]


def test_no_two_rows_are_the_same_to_the_chain() -> None:
    values = [
        chain.link("00", 1, 2, "ab", "c", 1, "d"),
        chain.link("00", 1, 2, "a", "bc", 1, "d"),
        chain.link("00", 1, 2, 'a","b', "c", 1, "d"),
        chain.link("00", 1, 2, "ab", None, 1, "d"),
        chain.link("00", 1, 2, "ab", "null", 1, "d"),
        chain.link("00", 1, 2, "ab", "c", None, "d"),
        chain.link("00", 12, 2, "ab", "c", 1, "d"),
    ]
    assert len(set(values)) == len(values)


def test_a_chain_of_rubbish_gives_a_bounded_report() -> None:
    links = [Link(seq, 0, "x", None, None, "", "") for seq in range(1, 500)]
    assert len(chain.verify(links, LEDGER).problems) == chain.MAX_PROBLEMS
