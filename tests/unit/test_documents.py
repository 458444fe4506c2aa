"""Documents: cut at every byte, damaged, newer, edited by hand, locked, on a full or read-only disk."""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tinydb import where
from tinydb.table import Document

from edgepanda import documents as module
from edgepanda.documents import DocumentError, Documents
from edgepanda.storage import StorageError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "peers.json"


def put(path: Path, *names: str) -> None:
    with Documents(path, exclusive=True) as documents:
        for name in names:
            documents.table("peers").insert({"name": name, "roles": ["node"]})


def names(path: Path) -> list[str]:
    with Documents(path) as documents:
        return [peer["name"] for peer in documents.table("peers").all()]


def previous(path: Path) -> Path:
    return path.with_name("peers.json.previous")


def test_documents_are_kept_readable_and_private(path: Path) -> None:
    assert names(path) == []
    put(path, "shed", "attic")
    assert names(path) == ["shed", "attic"]
    assert json.loads(path.read_text())["format"] == 1
    assert path.read_text().count("\n") > 10
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert {file.name for file in path.parent.iterdir()} == {"peers.json", "peers.json.previous", "peers.json.lock"}


def test_what_is_handed_out_and_in_is_a_copy(path: Path) -> None:
    given_in = {"name": "shed", "roles": ["node"]}
    with Documents(path, exclusive=True) as documents:
        peers = documents.table("peers")
        peers.insert(given_in)
        given_in["roles"].append("site")
        for _ in range(2):
            (found,) = peers.search(where("name") == "shed")
            assert found["roles"] == ["node"]
            found["roles"].append("operator")
            peers.all()[0]["roles"].clear()


def test_a_file_cut_at_any_byte_gives_the_last_whole_generation(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(path, "shed", "attic")
    whole, before = path.read_bytes(), previous(path).read_bytes()
    for length in range(len(whole) - 1):  # without its last line feed it is whole
        path.write_bytes(whole[:length])
        with Documents(path) as documents:
            assert [peer["name"] for peer in documents.table("peers").all()] == ["shed"]
            assert documents.notice is not None
            assert documents.notice.code == "document_damaged"
    assert "generation before it is used" in caplog.text
    path.unlink()
    assert names(path) == ["shed"]
    assert previous(path).read_bytes() == before


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rubbish=st.binary(max_size=60), place=st.integers(0, 200))
def test_rubbish_in_the_file_never_ends_in_anything_but_its_error(tmp_path: Path, rubbish: bytes, place: int) -> None:
    path = tmp_path / "peers.json"
    whole = b'{"format":1,"tables":{"peers":{"1":{"name":"shed","n":[1,{"a":null}]}}}}'
    path.write_bytes(whole[:place] + rubbish + whole[place + len(rubbish) :])
    caught: DocumentError | None = None
    try:
        with Documents(path) as documents:
            documents.table("peers").all()
    except DocumentError as error:
        caught = error
    if caught is not None:
        assert caught.code in ("document_damaged", "document_newer")
        assert caught.where


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"format":1}',
        '{"format":"1","tables":{}}',
        '{"format":1,"tables":[]}',
        '{"format":1,"tables":{"peers":{"first":{}}}}',
        '{"format":1,"tables":{"peers":{"1":7}}}',
        '{"format":1,"tables":{"peers":{"1":{"n":NaN}}}}',
        "[" * 100_000,
    ],
)
def test_both_generations_damaged_is_an_error_and_nothing_is_touched(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    previous(path).write_text("")
    with pytest.raises(DocumentError) as caught:
        put(path, "new")
    assert caught.value.code == "document_damaged"
    assert caught.value.where == str(path)
    assert (path.read_text(), previous(path).read_text()) == (text, "")
    put(path.with_name("other.json"), "unharmed")  # and the lock was let go
    with pytest.raises(DocumentError):
        put(path, "new")


def test_a_damaged_file_is_put_aside_and_never_becomes_the_good_generation(path: Path) -> None:
    put(path, "shed", "attic")
    for _ in range(3):  # a crash loop that damages the file each time
        path.write_bytes(b'{"format": 1, "tab')
        assert names(path) == ["shed"]
    put(path, "cellar")
    assert names(path) == ["shed", "cellar"]
    assert path.with_name("peers.json.damaged").read_bytes() == b'{"format": 1, "tab'
    path.write_bytes(b"")
    assert names(path) == ["shed"]


def test_nothing_is_written_when_nothing_changed(path: Path) -> None:
    put(path, "shed")
    before = [(file.stat().st_ino, file.stat().st_mtime_ns) for file in sorted(path.parent.iterdir())]
    with Documents(path, exclusive=True) as documents:
        documents.table("peers").update({"name": "shed"}, where("name") == "shed")
        documents.table("peers").remove(where("name") == "nobody")
    lock = path.with_name("peers.json.lock")
    after = [(file.stat().st_ino, file.stat().st_mtime_ns) for file in sorted(path.parent.iterdir()) if file != lock]
    assert set(after) <= set(before)


def test_one_process_writes_and_others_read(path: Path) -> None:
    with Documents(path, exclusive=True) as documents:
        with pytest.raises(StorageError, match=str(os.getpid())) as caught:
            Documents(path, exclusive=True)
        assert caught.value.code == "storage_locked"
        documents.table("peers").insert({"name": "shed"})
        with Documents(path) as reader, pytest.raises(DocumentError) as refused:
            reader.table("peers").insert({"name": "attic"})
        assert refused.value.code == "document_unlocked"
    put(path, "cellar")
    assert names(path) == ["shed", "cellar"]


def test_a_newer_document_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    text = '{"format":2,"tables":"something else"}'
    path.write_text(text)
    with pytest.raises(DocumentError) as caught:
        put(path, "new")
    assert caught.value.code == "document_newer"
    assert path.read_text() == text


def test_an_edit_by_hand_is_read_on_reload(path: Path) -> None:
    with Documents(path, exclusive=True) as documents:
        documents.table("peers").insert({"name": "shed"})
        path.write_text(path.read_text().replace("shed", "barn"))
        assert documents.table("peers").all() == [{"name": "shed"}]
        assert documents.reload()
        assert documents.table("peers").all() == [{"name": "barn"}]
        assert not documents.reload()


def test_a_document_that_was_added_by_hand_keeps_its_number(path: Path) -> None:
    with Documents(path, exclusive=True) as documents:
        peers = documents.table("peers")
        peers.insert({"name": "shed"})
        text = json.loads(path.read_text())
        text["tables"]["peers"]["2"] = {"name": "barn"}
        path.write_text(json.dumps(text))
        assert documents.reload()
        assert peers.insert({"name": "loft"}) == 3
        assert peers.insert_multiple([{"name": "attic"}, {"name": "cellar"}]) == [4, 5]
    assert names(path) == ["shed", "barn", "loft", "attic", "cellar"]


def test_an_edit_with_a_mistake_keeps_what_was_read_before(path: Path) -> None:
    with Documents(path, exclusive=True) as documents:
        for name in ("shed", "attic"):
            documents.table("peers").insert({"name": name})
        path.write_text(path.read_text().replace("]", "").replace("}", "", 1))
        assert not documents.reload()
        assert documents.notice is not None
        assert "stays in use" in documents.notice.message
        assert len(documents.table("peers")) == 2
        documents.table("peers").insert({"name": "cellar"})
        assert documents.notice is None
    assert names(path) == ["shed", "attic", "cellar"]


def test_an_edit_that_was_not_reloaded_is_kept_beside(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Documents(path, exclusive=True) as documents:
        documents.table("peers").insert({"name": "shed"})
        path.write_text(path.read_text().replace("shed", "barn"))
        with caplog.at_level(logging.WARNING):
            documents.table("peers").insert({"name": "attic"})
    assert "edited and not reloaded" in caplog.text
    assert "barn" in previous(path).read_text()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int, step: str
) -> None:
    put(path, "shed")

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with Documents(path, exclusive=True) as documents:
        with monkeypatch.context() as patch:
            patch.setattr(*((os, "fsync") if step == "fsync" else (Path, "replace")), fail)
            with pytest.raises(StorageError) as caught:
                documents.table("peers").insert({"name": "attic"})
        codes = {errno.ENOSPC: "storage_full", errno.EROFS: "storage_readonly", errno.EIO: "storage_unwritable"}
        assert caught.value.code == codes[number]
        assert len(documents.table("peers")) == 1
        assert not path.with_name("peers.json.new").exists()
        documents.table("peers").insert({"name": "cellar"})
    assert names(path) == ["shed", "cellar"]


def test_the_order_of_a_write_is_safe_at_every_step(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each system call of a write, a reader finds the old or the new data, whole and without a notice."""
    put(path, "shed")
    seen: list[list[str]] = []

    def watched(original):
        def call(*args: object, **kwargs: object) -> object:
            result = original(*args, **kwargs)
            with Documents(path) as reader:
                assert reader.notice is None
                seen.append([peer["name"] for peer in reader.table("peers").all()])
            return result

        return call

    with Documents(path, exclusive=True) as documents, monkeypatch.context() as patch:
        patch.setattr(Path, "replace", watched(Path.replace))
        patch.setattr(Path, "hardlink_to", watched(Path.hardlink_to))
        patch.setattr(module, "write_durably", watched(module.write_durably))
        patch.setattr(module, "fsync_folder", watched(module.fsync_folder))
        documents.table("peers").insert({"name": "attic"})
    assert seen == [["shed"]] * 3 + [["shed", "attic"]] * 2


def test_a_file_system_without_hard_links_works(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    put(path, "shed", "attic")
    path.write_bytes(b"")
    assert names(path) == ["shed"]


def test_a_document_is_found_by_its_number_after_reopening(tmp_path: Path) -> None:
    with Documents(tmp_path / "d.json", exclusive=True) as documents:
        documents.table("t").upsert(Document({"a": 1}, doc_id=7))
    with Documents(tmp_path / "d.json") as documents:
        assert documents.table("t").get(doc_id=7) == {"a": 1}
