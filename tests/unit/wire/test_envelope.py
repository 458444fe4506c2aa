"""The envelope: whatever comes in, it is the original or an `EnvelopeError` with the right code."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgepanda.trust.identity import Identity
from edgepanda.wire import envelope
from edgepanda.wire.envelope import LARGEST, EnvelopeError, Opened, plain, seal, unseal

ME, OTHER = Identity.create(), Identity.create()
KEYS = {ME.kid: ME.public, OTHER.kid: OTHER.public}
SITE, TOPIC, ID = "home", "v1/nodes/pi/report", "0a1b2c3d4e5f6g7h8j9k"
BODIES = [b'{"id":"one","type":"started","task":"t","attempt":1,"seq":1}', b'{"id":"two","type":"ack","of":["x"]}']
CODES = {"oversized", "malformed", "newer_version", "wrong_site", "unknown_key", "bad_signature"}

few = settings(deadline=None, max_examples=60)
many = settings(deadline=None, max_examples=100)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(10**400),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


def sealed(**more) -> bytes:
    return seal(**{"identity": ME, "site": SITE, "topic": TOPIC, "envelope_id": ID, "bodies": BODIES, **more})


def opened(payload: bytes, *, site: str = SITE, topic: str = TOPIC) -> Opened:
    return unseal(payload, site=site, topic=topic, key_of=KEYS.get)


def verdict(payload: bytes, original: Opened, **where: str) -> str:
    """`same`, the code of the refusal, or what was taken though nobody had said it."""
    try:
        found = opened(payload, **where)
    except EnvelopeError as error:
        return error.code
    return "same" if said(found) == said(original) and not where else f"taken: {found}"


def said(found: Opened) -> tuple[object, ...]:
    return found.kid, found.id, tuple(bytes(body) for body in found.bodies)


# What honest peers send


@few
@given(
    st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=20) | st.integers(-(2**63), 2**63), max_size=4)),
    st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=20),
)
def test_what_was_sealed_opens_to_the_same_bytes(bodies, envelope_id):
    encoded = [msgspec.json.encode(body) for body in bodies]
    found = opened(sealed(bodies=encoded, envelope_id=envelope_id))
    assert said(found) == (ME.kid, envelope_id, tuple(encoded))


def test_it_reads_as_json_with_the_body_last():
    payload = sealed()
    read = json.loads(payload)
    assert list(read) == ["v", "site", "kid", "id", "sig", "body"]
    assert read["body"] == [json.loads(body) for body in BODIES]
    assert payload.endswith(b'"body":[' + b",".join(BODIES) + b"]}")


def test_unknown_members_are_ignored():
    payload = sealed()[:-1] + b',"later":{"a":[1]}}'
    assert said(opened(payload)) == (ME.kid, ID, tuple(BODIES))


# Mutations: each is refused with its code, or is the original

Parts = list[tuple[str, bytes]]
Mutation = tuple[str, str, bytes, dict[str, str]]  # name, expected verdict, payload, where it is presented


def parts_of(payload: bytes) -> Parts:
    return [(name, bytes(raw)) for name, raw in msgspec.json.decode(payload, type=dict[str, msgspec.Raw]).items()]


def joined(parts: Parts, between: bytes = b"") -> bytes:
    members = [b'"%s"%s:%s%s' % (name.encode(), between, between, raw) for name, raw in parts]
    return b"{" + between + (b"," + between).join(members) + between + b"}"


def swapped(parts: Parts, **new: bytes) -> bytes:
    return joined([(name, new.get(name, raw)) for name, raw in parts])


def quoted(text: str) -> bytes:
    return msgspec.json.encode(text)


def mutations() -> list[Mutation]:
    payload = sealed()
    parts = parts_of(payload)
    raw = dict(parts)
    loaded = json.loads(raw["body"])
    by_other = dict(parts_of(sealed(identity=OTHER)))
    later = dict(parts_of(sealed(envelope_id="another", bodies=[BODIES[0]])))
    text = envelope._signed_text(SITE, TOPIC, ME.kid, ID, raw["body"])
    others_signature = quoted(base64.b64encode(OTHER.sign(text)).decode())
    forged = b'[{"id":"evil","type":"started","task":"t","attempt":1,"seq":1}]'

    def body(name: str, new: bytes) -> Mutation:
        return (f"body {name}", "bad_signature", swapped(parts, body=new), {})

    def header(name: str, expected: str, **new: bytes) -> Mutation:
        return (name, expected, swapped(parts, **new), {})

    return [
        body("re-serialised", json.dumps(loaded).encode()),
        body("with its members reordered", json.dumps([dict(reversed(b.items())) for b in loaded]).encode()),
        body("with a member doubled", raw["body"].replace(b'{"id"', b'{"id":"one","id"', 1)),
        body("with a member of another value", raw["body"].replace(b'"attempt":1', b'"attempt":2')),
        body("doubled", b"[" + b",".join(BODIES * 2) + b"]"),
        body("in another order", b"[" + b",".join(reversed(BODIES)) + b"]"),
        body("cut", b"[" + BODIES[0] + b"]"),
        body("empty", b"[]"),
        body("escaped", raw["body"].replace(b"started", b"st\\u0061rted")),
        ("body twice, the forged one last", "bad_signature", joined([*parts, ("body", forged)]), {}),
        ("body twice, the forged one first", "same", joined([("body", forged), *parts]), {}),
        ("id twice, the forged one last", "bad_signature", joined([*parts, ("id", b'"evil"')]), {}),
        ("id twice, the forged one first", "same", joined([("id", b'"evil"'), *parts]), {}),
        ("kid twice, the forged one last", "bad_signature", joined([*parts, ("kid", quoted(OTHER.kid))]), {}),
        ("header reordered", "same", joined(list(reversed(parts))), {}),
        ("header spaced", "same", joined(parts, b" \n\t"), {}),
        ("header name escaped", "same", payload.replace(b'"site"', b'"s\\u0069te"', 1), {}),
        header("id exchanged", "bad_signature", id=later["id"]),
        header("id emptied", "bad_signature", id=b'""'),
        header("id with a zero byte", "bad_signature", id=b'"\\u0000"'),
        header("kid exchanged", "bad_signature", kid=quoted(OTHER.kid)),
        header("kid unknown", "unknown_key", kid=b'"aaaaaaaaaaaaaaaa"'),
        header("site exchanged", "wrong_site", site=b'"away"'),
        ("presented at another site", "bad_signature", swapped(parts, site=b'"away"'), {"site": "away"}),
        ("presented on another topic", "bad_signature", payload, {"topic": "v1/nodes/attic/report"}),
        ("presented on a topic of another kind", "bad_signature", payload, {"topic": "v1/nodes/pi/claim"}),
        header("somebody else's valid signature", "bad_signature", sig=others_signature),
        header("somebody else's envelope under our key", "bad_signature", sig=by_other["sig"]),
        header("the signature of another envelope of ours", "bad_signature", sig=later["sig"]),
        header("no signature", "bad_signature", sig=b'""'),
        header("a short signature", "bad_signature", sig=b'"AAAA"'),
        header("a signature that is no base 64", "bad_signature", sig=quoted("ä" * 88)),
        header("v raised", "newer_version", v=b"2"),
        header("v a text", "malformed", v=b'"1"'),
        header("v true", "malformed", v=b"true"),
        ("v missing", "malformed", joined(parts[1:]), {}),
        ("body missing", "malformed", joined(parts[:-1]), {}),
    ]


def wrong(made: list[Mutation]) -> dict[str, str]:
    """The mutations whose verdict is another than it should be."""
    original = opened(sealed())
    found = {name: verdict(payload, original, **where) for name, _, payload, where in made}
    return {name: found[name] for name, expected, _, _ in made if found[name] != expected}


def test_each_mutation_is_refused_with_its_code_or_is_the_original():
    assert wrong(mutations()) == {}


def without(*left_out: str) -> Callable[[str, str, str, str, bytes], bytes]:
    def weaker(site: str, topic: str, kid: str, envelope_id: str, body: bytes) -> bytes:
        covered = {"site": site.encode(), "topic": topic.encode(), "kid": kid.encode(), "id": envelope_id.encode()}
        return b"\0".join([b"edgepanda-v1", *(v for k, v in covered.items() if k not in left_out), body])

    return weaker


@pytest.mark.parametrize(
    ("left_out", "caught"),
    [
        ("topic", {"presented on another topic", "presented on a topic of another kind"}),
        ("id", {"id exchanged", "id emptied", "id twice, the forged one last"}),
        ("site", {"presented at another site"}),
    ],
)
def test_a_build_that_leaves_something_out_of_the_signature_is_caught(monkeypatch, left_out, caught):
    monkeypatch.setattr(envelope, "_signed_text", without(left_out))
    assert wrong(mutations()).keys() == caught


def test_a_build_that_signs_nothing_but_the_header_is_caught(monkeypatch):
    monkeypatch.setattr(
        envelope,
        "_signed_text",
        lambda site, topic, kid, envelope_id, body: without()(site, topic, kid, envelope_id, b""),
    )
    assert {name for name in wrong(mutations()) if name.startswith("body")} >= {
        "body cut",
        "body empty",
        "body doubled",
    }


# Fuzz: nothing but `EnvelopeError`


@many
@given(st.binary(max_size=300))
def test_random_bytes(payload):
    with pytest.raises(EnvelopeError):
        opened(payload)


@many
@given(JSON)
def test_random_json(value):
    with pytest.raises(EnvelopeError):
        opened(json.dumps(value).encode())


@many
@given(st.dictionaries(st.sampled_from(["v", "site", "kid", "id", "sig", "body"]), JSON))
def test_an_envelope_with_random_members(members):
    honest = json.loads(sealed())
    assert verdict(json.dumps({**honest, **members}).encode(), opened(sealed())) in CODES | {"same"}


@many
@given(st.binary(max_size=60), st.sampled_from(["site", "kid", "id", "sig", "body", "v"]))
def test_a_member_with_random_bytes(raw, name):
    assert verdict(swapped(parts_of(sealed()), **{name: raw}), opened(sealed())) in CODES | {"same"}


@many
@given(
    st.text(st.characters(codec=None, categories=["Cs", "Cc", "L"]), max_size=5), st.sampled_from(["site", "kid", "id"])
)
def test_half_of_a_surrogate_pair(text, name):
    escaped = json.dumps(text).encode()  # `\\ud800` and the like
    assert verdict(swapped(parts_of(sealed()), **{name: escaped}), opened(sealed())) in CODES


@few
@given(st.integers(0, len(sealed()) - 1))
def test_a_cut_payload(size):
    with pytest.raises(EnvelopeError):
        opened(sealed()[:size])


@many
@given(st.integers(0, len(sealed()) - 1), st.integers(1, 255))
def test_one_byte_changed(place, flip):
    payload = bytearray(sealed())
    payload[place] ^= flip
    assert verdict(bytes(payload), opened(sealed())) in CODES | {"same"}


@pytest.mark.parametrize("name", ["v", "site", "kid", "id", "sig", "body", "unknown"])
@pytest.mark.parametrize("open_", [b"[", b'{"a":', b'[{"a":['])
def test_deep_nesting(name, open_):
    deep = open_ * (60_000 // len(open_))
    with pytest.raises(EnvelopeError):
        opened(b"{" + (b'"%s":' % name.encode()) + deep)


@pytest.mark.parametrize(
    "body", [b"[" * 30_000 + b"]" * 30_000, b"{}", b"null", b"1", b'"text"', b"[NaN]", b"[1,]", b""]
)
def test_a_signed_body_that_is_no_list_of_bodies(body):
    signature = ME.sign(envelope._signed_text(SITE, TOPIC, ME.kid, ID, body))
    head = {"v": 1, "site": SITE, "kid": ME.kid, "id": ID, "sig": base64.b64encode(signature).decode()}
    payload = json.dumps(head).encode()[:-1] + b',"body":' + body + b"}"
    with pytest.raises(EnvelopeError) as caught:
        opened(payload)
    assert caught.value.code == "malformed"


@pytest.mark.parametrize("v", [b"NaN", b"Infinity", b"1e999", b"9" * 5000, b"-1", b"0", b"99999999999999999999"])
def test_a_version_that_is_no_version(v):
    assert verdict(swapped(parts_of(sealed()), v=v), opened(sealed())) in {"malformed", "newer_version"}


def test_the_size_is_checked_before_anything_is_parsed(monkeypatch):
    monkeypatch.setattr(envelope, "_decode_wire", lambda _: pytest.fail("parsed"))
    for payload in (b" " * (LARGEST + 1), sealed(bodies=[b'"' + b"x" * LARGEST + b'"'])):
        with pytest.raises(EnvelopeError) as caught:
            opened(payload)
        assert (caught.value.code, caught.value.where) == ("oversized", TOPIC)


def test_the_largest_payload_that_is_allowed_opens():
    padding = LARGEST - len(sealed(bodies=[b'""']))
    payload = sealed(bodies=[b'"' + b"x" * padding + b'"'])
    assert len(payload) == LARGEST
    opened(payload)


def test_plain_values():
    assert plain({"a": [1, 2.5, None, True, "x", -(2**63), 2**64 - 1]})
    for value in (float("nan"), float("inf"), 2**64, -(2**63) - 1, [{"a": [float("-inf")]}]):
        assert not plain(value)
    deep: object = 1
    for _ in range(100):
        deep = [deep]
    assert not plain(deep)
