"""records.py: what is written comes back bit for bit, and nothing damaged is believed."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import io
import json
import os
import re
import resource
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.lib import format as npy

import records
from records import Checkpoint, RecordError

# No tolerances here: a record is bits, and every comparison below is exact.

finite = st.floats(allow_nan=False, allow_infinity=False)
plain_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"))
names = st.text("abcdefgh_", min_size=1, max_size=6)
stored_arrays = hnp.arrays(
    dtype=st.sampled_from(["<f8", ">f8", "<f4", "<i8", ">i4", "|u1", "|b1", "<U3"]),
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    elements={"allow_nan": False, "allow_infinity": False},
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of its own in which leftovers can be counted."""
    place = tmp_path / "records"
    place.mkdir()
    return place


def no_leftovers(folder: Path, *expected: str) -> bool:
    return sorted(os.listdir(folder)) == sorted(expected)


def an_error(text: str) -> str:
    """What a RecordError must say; and always on one line."""
    return rf"(?s)\A(?!.*\n).*{re.escape(text)}"


# --- atomic writes --------------------------------------------------------------------------


def test_write_makes_missing_folders_and_leaves_nothing_else(folder: Path) -> None:
    records.write_bytes(folder / "new" / "deep" / "file", b"content")
    assert (folder / "new" / "deep" / "file").read_bytes() == b"content"
    assert no_leftovers(folder / "new" / "deep", "file")


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ZeroDivisionError, SystemExit])
def test_an_interrupted_write_leaves_the_old_file(folder: Path, error: type[BaseException]) -> None:
    records.write_bytes(folder / "file", b"old")
    with pytest.raises(error), records.atomic_file(folder / "file") as stream:
        stream.write(b"half of the ne")
        raise error
    assert (folder / "file").read_bytes() == b"old"
    assert no_leftovers(folder, "file")


@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        ("fsync", errno.ENOSPC, "free some space"),
        ("fsync", errno.EDQUOT, "free some space"),
        ("replace", errno.EACCES, "check the permissions"),
        ("replace", errno.EROFS, "check the permissions"),
        ("replace", errno.EIO, "check the path and the disk"),
    ],
)
def test_what_the_system_refuses_is_one_clear_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int, words: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    records.write_bytes(folder / "file", b"old")
    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(RecordError, match=an_error(words)) as caught:
        records.write_json(folder / "file", {"a": 1})
    assert str(folder / "file") in str(caught.value)
    assert os.strerror(code) in str(caught.value)
    assert (folder / "file").read_bytes() == b"old"
    assert no_leftovers(folder, "file")


class _FullDisk:
    """A limit on the size of files, which the system enforces as a full disk would be."""

    def __enter__(self) -> None:
        self.limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, self.limits[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self.limits)


@pytest.mark.parametrize("write", ["bytes", "npz", "jsonl", "append"])
def test_a_disk_that_fills_up_harms_nothing(folder: Path, write: str) -> None:
    noise = np.random.default_rng(1).standard_normal(5000)  # 40 kB that do not compress
    path = folder / "file"
    verbs: dict[str, Callable[[], object]] = {
        "bytes": lambda: records.write_bytes(path, noise.tobytes()),
        "npz": lambda: records.write_npz(path, {"noise": noise}),
        "jsonl": lambda: records.write_jsonl(path, [{"noise": noise}]),
        "append": lambda: records.append_jsonl(path, {"noise": noise}),
    }
    path.write_bytes(b'{"old": 1}\n')
    with pytest.raises(RecordError, match=an_error("free some space")), _FullDisk():
        verbs[write]()
    assert path.read_bytes() == b'{"old": 1}\n'
    assert no_leftovers(folder, "file")


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="needs POSIX users")
def test_no_permission_is_one_clear_line(folder: Path) -> None:
    (folder / "file").write_bytes(b"old")
    os.chmod(folder / "file", stat.S_IRUSR)
    os.chmod(folder, stat.S_IRUSR | stat.S_IXUSR)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)  # root is refused nothing
    try:
        for name in ("file", "new"):
            with pytest.raises(RecordError, match=an_error("check the permissions")):
                records.write_json(folder / name, {})
            with pytest.raises(RecordError, match=an_error("check the permissions")):
                records.append_jsonl(folder / name, {})
        if root:
            with pytest.raises(RecordError, match=an_error("check the permissions")):
                records.read_json(folder / "file")
    finally:
        if root:
            os.seteuid(0)
        os.chmod(folder, stat.S_IRWXU)
    assert (folder / "file").read_bytes() == b"old"
    assert no_leftovers(folder, "file")


def test_only_plain_files_are_replaced(folder: Path) -> None:
    with pytest.raises(RecordError, match=an_error("not of a folder")):
        records.write_bytes(folder, b"")
    os.mkfifo(folder / "pipe")
    with pytest.raises(RecordError, match=an_error("a device or a pipe")):
        records.write_bytes(folder / "pipe", b"")
    (folder / "file").write_bytes(b"")
    with pytest.raises(RecordError, match=an_error("a folder in it is a file")):
        records.write_bytes(folder / "file" / "below", b"")
    assert no_leftovers(folder, "file", "pipe")


def test_a_link_is_followed_not_replaced(folder: Path) -> None:
    (folder / "link").symlink_to(folder / "file")
    records.write_bytes(folder / "link", b"content")
    assert (folder / "link").is_symlink()
    assert (folder / "file").read_bytes() == b"content"


@pytest.mark.parametrize(
    "read",
    [
        records.read_json,
        records.read_jsonl,
        records.read_npz,
        records.read_checkpoint,
        records.sha256_file,
        lambda path: records.read_csv(path, {"a": int}),
        lambda path: records.code_hash([path]),
    ],
)
def test_a_missing_file_or_a_folder_is_named(folder: Path, read: Callable[[Path], object]) -> None:
    with pytest.raises(RecordError, match=an_error("No such file")) as caught:
        read(folder / "missing")
    assert str(folder / "missing") in str(caught.value)
    with pytest.raises(RecordError, match=an_error("not of a folder")):
        read(folder)


# --- hashes and versions --------------------------------------------------------------------


def test_sha256_of_a_file_is_the_published_value(folder: Path) -> None:
    (folder / "file").write_bytes(b"abc")  # the example of FIPS 180-2
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert records.sha256_file(folder / "file") == expected


def test_sha256_of_arrays_is_what_its_definition_says() -> None:
    array = np.array([[1.5, -2.0]])
    by_hand = hashlib.sha256(b'["w", "<f8", [1, 2]]\n' + struct.pack("<2d", 1.5, -2.0))
    assert records.sha256_arrays({"w": array}) == by_hand.hexdigest()


@given(st.dictionaries(names, stored_arrays, min_size=1, max_size=3))
def test_sha256_of_arrays_sees_contents_not_layout(arrays: dict[str, Any]) -> None:
    fortran = {name: np.array(arrays[name], order="F") for name in reversed(list(arrays))}
    swapped = {name: x.astype(x.dtype.newbyteorder()) for name, x in arrays.items()}
    expected = records.sha256_arrays(arrays)
    assert records.sha256_arrays(fortran) == expected
    assert records.sha256_arrays(swapped) == expected


def test_sha256_of_arrays_sees_name_type_shape_and_every_bit() -> None:
    array = np.arange(6.0)
    one_bit = array.copy()
    one_bit[3] = np.nextafter(3.0, 4.0)
    cases: list[dict[str, Any]] = [
        {"w": array},
        {"v": array},
        {"w": array.reshape(2, 3)},
        {"w": array.reshape(3, 2)},
        {"w": array.astype(np.float32)},
        {"w": array.astype(np.int64)},
        {"w": one_bit},
        {"w": -array},  # differs in the sign of zero too
        {"w": array[:3], "x": array[3:]},
        {},
    ]
    assert len({records.sha256_arrays(case) for case in cases}) == len(cases)


def test_code_hash_moves_with_the_code_and_not_with_the_folder(folder: Path) -> None:
    for place in ("here", "there"):
        (folder / place).mkdir()
        (folder / place / "one.py").write_bytes(b"x = 1\n")
        (folder / place / "two.py").write_bytes(b"y = 2\n")
    here = [folder / "here" / "one.py", folder / "here" / "two.py"]
    there = [folder / "there" / "two.py", folder / "there" / "one.py"]
    before = records.code_hash(here)
    assert records.code_hash(there) == before
    there[0].write_bytes(b"y = 2\r\n")
    assert records.code_hash(there) == before
    there[0].write_bytes(b"y = 3\n")
    assert records.code_hash(there) != before
    assert records.code_hash(here[:1]) != before
    with pytest.raises(RecordError, match=an_error("two files share a name")):
        records.code_hash([here[0], there[1]])


def test_versions_are_text_and_can_be_recorded(folder: Path) -> None:
    found = records.versions()
    assert set(found) == {"python", "numpy", "scipy", "blas", "blas_threads", "platform"}
    assert found["numpy"] == np.__version__
    assert found["blas_threads"] == "1"  # set in conftest.py
    assert all(isinstance(value, str) and value for value in found.values())
    records.write_json(folder / "versions.json", found)


# --- json -----------------------------------------------------------------------------------

documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | finite | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
).filter(lambda document: "\\ud" not in json.dumps(document))  # a lone surrogate is no text


@given(documents)
def test_json_round_trip(tmp_path: Path, document: Any) -> None:
    path = tmp_path / "document.json"
    records.write_json(path, document)
    back = records.read_json(path)
    assert repr(back) == repr(json.loads(json.dumps(document, sort_keys=True)))
    first = path.read_bytes()
    records.write_json(path, back)
    assert path.read_bytes() == first


def test_json_format() -> None:
    document = {"b": np.float64(0.1), "a": [np.int64(3), np.bool_(True)], "λ": np.arange(2)}
    expected = '{\n  "a": [\n    3,\n    true\n  ],\n  "b": 0.1,\n  "λ": [\n    0,\n    1\n  ]\n}\n'
    assert records.to_json(document) == expected


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, np.float32("nan"), np.array(np.nan)])
def test_json_refuses_what_is_not_finite_by_its_name(folder: Path, value: Any) -> None:
    document = {"networks": [{"llc": 1.0}, {"llc": value}]}
    with pytest.raises(RecordError, match=an_error("field networks[1].llc is ")):
        records.write_json(folder / "x.json", document)
    assert no_leftovers(folder)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"a": {1: 2}}, "field a has the key 1"),
        ({"a": 1j}, "field a is a complex"),
        ({"a": {1, 2}}, "field a is a set"),
        ({"a": [Path("x")]}, "field a[0] is a "),
    ],
)
def test_json_refuses_what_it_cannot_hold(document: Any, words: str) -> None:
    with pytest.raises(RecordError, match=an_error(words)):
        records.to_json(document)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b'{"a": 1', "not JSON"),
        (b'{"a": "\xff"}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"9" * 5000, "not JSON"),
        (b'{"a": NaN}', "field a is nan"),
        (b'{"a": [0, -1e999]}', "field a[1] is -inf"),
    ],
)
def test_read_json_refuses_damage(folder: Path, content: bytes, words: str) -> None:
    (folder / "x.json").write_bytes(content)
    with pytest.raises(RecordError, match=an_error(words)):
        records.read_json(folder / "x.json")


# --- jsonl ----------------------------------------------------------------------------------

json_records = st.dictionaries(names, finite | st.integers() | plain_text, max_size=3)


@given(st.lists(json_records, min_size=1, max_size=4))
def test_jsonl_round_trip(tmp_path: Path, items: list[dict[str, Any]]) -> None:
    path = tmp_path / "r.jsonl"
    path.unlink(missing_ok=True)
    for item in items:
        assert records.append_jsonl(path, item) == ""
    assert records.read_jsonl(path) == (items, "")
    appended = path.read_bytes()
    assert appended.count(b"\n") == len(items)
    records.write_jsonl(path, items)
    assert path.read_bytes() == appended


def test_an_append_torn_at_any_byte_is_reported_and_loses_nothing_else(folder: Path) -> None:
    path = folder / "r.jsonl"
    first, second = {"id": 1, "name": "κ"}, {"id": 2, "name": "λ=½"}
    records.append_jsonl(path, first)
    kept = path.read_bytes()
    records.append_jsonl(path, second)
    whole = path.read_bytes()
    for end in range(len(kept), len(whole) + 1):
        path.write_bytes(whole[:end])
        found, torn = records.read_jsonl(path)
        complete = end >= len(whole) - 1  # only the newline is missing, or nothing
        assert found == ([first, second] if complete else [first])
        assert torn == ("" if complete else whole[len(kept) : end].decode("utf-8", "replace"))
        assert records.append_jsonl(path, {"id": 3}) == torn
        assert records.read_jsonl(path) == ([*found, {"id": 3}], "")


def test_an_interrupted_append_takes_itself_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "r.jsonl"
    records.append_jsonl(path, {"id": 1})

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        records.append_jsonl(path, {"id": 2})
    assert path.read_bytes() == b'{"id": 1}\n'


@pytest.mark.parametrize("line", [b"{", b"[1]", b"1", b"null", b'{"a": "\xff"}'])
def test_read_jsonl_refuses_a_damaged_line(folder: Path, line: bytes) -> None:
    path = folder / "r.jsonl"
    path.write_bytes(b'{"a": 1}\n\n' + line + b'\n{"a": 2}\n')
    with pytest.raises(RecordError, match=an_error("line 3 is no JSON object")):
        records.read_jsonl(path)
    path.write_bytes(b'{"a": NaN}\n')
    with pytest.raises(RecordError, match=an_error("line 1: field a is nan")):
        records.read_jsonl(path)


def test_append_jsonl_refuses_nan_before_it_touches_the_file(folder: Path) -> None:
    with pytest.raises(RecordError, match=an_error("field a is nan")):
        records.append_jsonl(folder / "r.jsonl", {"a": np.nan})
    assert no_leftovers(folder)


# --- csv ------------------------------------------------------------------------------------

COLUMNS: dict[str, type] = {"llc": float, "p": int, "settled": bool, "name": str}
rows_of_columns = st.fixed_dictionaries(
    {
        "llc": finite | st.none(),
        "p": st.integers() | st.none(),
        "settled": st.booleans() | st.none(),
        "name": plain_text,
    }
)


@given(st.lists(rows_of_columns, max_size=4))
def test_csv_round_trip(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    records.write_csv(tmp_path / "t.csv", COLUMNS, rows)
    back = records.read_csv(tmp_path / "t.csv", COLUMNS)
    assert back == rows
    assert repr(back) == repr([{c: row[c] for c in COLUMNS} for row in rows])  # -0.0 is not 0.0


@given(st.lists(finite | st.none(), max_size=3), st.lists(plain_text, max_size=3))
def test_csv_of_one_column(tmp_path: Path, values: list[float | None], texts: list[str]) -> None:
    columns: list[tuple[type, list[Any]]] = [(float, [*values]), (str, [*texts])]
    for kind, items in columns:
        rows: list[dict[str, Any]] = [{"x": item} for item in items]
        records.write_csv(tmp_path / "t.csv", {"x": kind}, rows)
        assert records.read_csv(tmp_path / "t.csv", {"x": kind}) == rows


def test_csv_format(folder: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"name": 'a,"b"', "p": np.int64(11), "settled": np.bool_(True), "llc": np.float64(0.1)},
        {"llc": 3, "p": None, "settled": False, "name": ""},
    ]
    records.write_csv(folder / "t.csv", COLUMNS, rows)
    expected = 'llc,p,settled,name\n0.1,11,true,"a,""b"""\n3.0,,false,\n'
    assert (folder / "t.csv").read_text() == expected


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"llc": np.nan}, "row 2 column llc is nan"),
        ({"llc": "1.0"}, "row 2 column llc is '1.0'; it must be a float"),
        ({"p": 1.0}, "row 2 column p is 1.0; it must be a int"),
        ({"p": True}, "row 2 column p is True"),
        ({"settled": 1}, "row 2 column settled is 1"),
        ({"name": None}, "row 2 column name is None"),
        ({"name": "a\nb"}, "row 2 column name is 'a\\nb'"),
        ({"extra": 1}, "row 2 differs from the columns in ['extra']"),
    ],
)
def test_write_csv_refuses(folder: Path, change: dict[str, Any], words: str) -> None:
    good = {"llc": 1.0, "p": 1, "settled": True, "name": "x"}
    with pytest.raises(RecordError, match=an_error(words)):
        records.write_csv(folder / "t.csv", COLUMNS, [good, {**good, **change}])
    assert no_leftovers(folder)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "columns are [], expected ['llc', 'p', 'settled', 'name']"),
        (b"p,llc,settled,name\n", "columns are ['p', 'llc', 'settled', 'name']"),
        (b"llc,p,settled,name\n1.0,1,true\n", "row 1 has 3 cells, expected 4"),
        (b"llc,p,settled,name\n1.0,1,true,x\n1.0,1", "row 2 has 2 cells"),
        (b"llc,p,settled,name\none,1,true,x\n", "row 1 column llc is 'one', not a float"),
        (b"llc,p,settled,name\n1.0,1.5,true,x\n", "row 1 column p is '1.5', not a int"),
        (b"llc,p,settled,name\n1.0,1,True,x\n", "row 1 column settled is 'True', not a bool"),
        (b"llc,p,settled,name\nnan,1,true,x\n", "row 1 column llc is nan"),
        (b"llc,p,settled,name\n1.0,1,true,\xff\n", "not readable as csv"),
        (b'llc,p,settled,name\n1.0,1,true,"' + b"x" * 200_000, "not readable as csv"),
    ],
)
def test_read_csv_refuses(folder: Path, content: bytes, words: str) -> None:
    (folder / "t.csv").write_bytes(content)
    with pytest.raises(RecordError, match=an_error(words)):
        records.read_csv(folder / "t.csv", COLUMNS)


# --- npz ------------------------------------------------------------------------------------


def assert_same_arrays(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert found[name].dtype == np.asarray(array).dtype.newbyteorder("=")
        assert found[name].shape == np.shape(array)
        assert found[name].tobytes() == array.astype(found[name].dtype).tobytes()
        assert found[name].flags.writeable


@given(st.dictionaries(names, stored_arrays, max_size=3))
def test_npz_round_trip_and_same_bytes_again(tmp_path: Path, arrays: dict[str, Any]) -> None:
    path, again = tmp_path / "a.npz", tmp_path / "b.npz"
    records.write_npz(path, arrays)
    assert_same_arrays(records.read_npz(path), arrays)
    backwards = {name: np.array(arrays[name], order="F") for name in reversed(list(arrays))}
    records.write_npz(again, backwards)
    assert records.sha256_file(again) == records.sha256_file(path)
    with np.load(path, allow_pickle=False) as loaded:  # numpy's own reader agrees
        assert_same_arrays({name: loaded[name].copy() for name in loaded.files}, arrays)


@given(st.dictionaries(names.filter(lambda x: x != "file"), stored_arrays, max_size=3))
def test_npz_reads_what_numpy_saves(tmp_path: Path, arrays: dict[str, Any]) -> None:
    fortran: dict[str, Any] = {name: np.array(x, order="F") for name, x in arrays.items()}
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **fortran)
        assert_same_arrays(records.read_npz(tmp_path / "a.npz"), arrays)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.array([[1.0, 2.0], [np.nan, 3.0]]), "array w is nan at (1, 0)"),
        (np.array(np.inf, dtype=np.float32), "array w is inf at ()"),
        (np.array([1j]), "array w has type complex128"),
        (np.array([None]), "array w has type object"),
        (np.array([b"x"]), "array w has type |S1"),
        (np.array([1.0], dtype=np.float16), "array w has type float16"),
    ],
)
def test_write_npz_refuses(folder: Path, array: Any, words: str) -> None:
    with pytest.raises(RecordError, match=an_error(words)):
        records.write_npz(folder / "a.npz", {"v": np.zeros(3), "w": array})
    assert no_leftovers(folder)


ARRAYS = {"w": np.arange(12.0).reshape(3, 4), "pairs": np.arange(5)}


@pytest.fixture(scope="module")
def npz_content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("npz") / "a.npz"
    records.write_npz(path, ARRAYS)
    return path.read_bytes()


def test_npz_cut_off_at_any_byte_is_refused(folder: Path, npz_content: bytes) -> None:
    path = folder / "a.npz"
    for end in range(len(npz_content)):
        path.write_bytes(npz_content[:end])
        with pytest.raises(RecordError, match=an_error("damaged")):
            records.read_npz(path)


@settings(max_examples=400)
@given(st.data())
def test_npz_with_bytes_changed_is_refused_or_unharmed(
    tmp_path: Path, npz_content: bytes, data: st.DataObject
) -> None:
    # A changed date in the archive's directory changes no array; a changed entry name renames one.
    content = bytearray(npz_content)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "a.npz").write_bytes(content)
    try:
        found = records.read_npz(tmp_path / "a.npz")
    except RecordError:
        return
    expected = {array.tobytes() for array in ARRAYS.values()}
    assert {array.tobytes() for array in found.values()} <= expected


def zip_of(**entries: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in entries.items():
            archive.writestr(f"{name}.npy", content)
    return stream.getvalue()


def npy_bytes(array: Any, version: tuple[int, int] = (1, 0)) -> bytes:
    stream = io.BytesIO()
    npy.write_array(stream, np.asarray(array), version=version)
    return stream.getvalue()


def npy_header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b"hello",
        npy_bytes(np.arange(3.0))[:-1],
        npy_bytes(np.arange(3.0)) + b"\0",
        npy_bytes(np.arange(3.0), version=(2, 0)),
        npy_bytes(np.array([{"a": 1}], dtype=object)),  # a pickle
        npy_bytes(np.array([1j])),
        npy_header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}"),
        npy_header("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}"),
        npy_header("{'descr': '<f8', 'fortran_order': False, 'shape': __import__('os')}"),
        npy_header("{'descr': '<f8', 'fortran_order': False"),
        npy_header("'''"),
        npy_header("1"),
    ],
)
@pytest.mark.filterwarnings("ignore:Reading `.npy` or `.npz` file required additional header")
def test_read_npz_refuses_a_bad_entry(folder: Path, entry: bytes) -> None:
    (folder / "a.npz").write_bytes(zip_of(w=entry))
    with pytest.raises(RecordError, match=an_error("not readable as .npz")):
        records.read_npz(folder / "a.npz")


def test_read_npz_refuses_nan_and_other_files(folder: Path) -> None:
    path = folder / "a.npz"
    np.savez(path, w=np.array([1.0, np.nan]))
    with pytest.raises(RecordError, match=an_error("array w is nan at (1,)")):
        records.read_npz(path)
    np.save(folder / "b.npy", np.zeros(3))
    for content in (b"", b"torch", (folder / "b.npy").read_bytes()):
        path.write_bytes(content)
        with pytest.raises(RecordError, match=an_error("it is no .npz, or is damaged")):
            records.read_npz(path)


def test_read_npz_says_so_when_the_archive_needs_a_password(folder: Path) -> None:
    content = bytearray(zip_of(w=npy_bytes(np.zeros(3))))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + offset] |= 1  # the flag "encrypted"
    (folder / "a.npz").write_bytes(content)
    with pytest.raises(RecordError, match=an_error("save it with numpy.savez")):
        records.read_npz(folder / "a.npz")


# --- checkpoints ----------------------------------------------------------------------------


def a_checkpoint(p: int = 5, K: int = 3, n: int = 7, seed: int = 0) -> Checkpoint:
    draws = np.random.default_rng(seed)
    a, b = np.divmod(draws.permutation(p * p)[:n], p)
    u, v = draws.standard_normal((2, K, p))
    W = draws.standard_normal((p, K))
    return Checkpoint(p, K, a, b, u, v, W, n / p**2, seed, 1e-9, 1000, "adam", 5000, 0.5)


@st.composite
def checkpoints(draw: st.DrawFn) -> Checkpoint:
    p = draw(st.integers(2, 7))
    made = a_checkpoint(p, draw(st.integers(1, 5)), draw(st.integers(2, p * p)))
    known = draw(
        st.sets(st.sampled_from(["fraction", "seed", "loss", "steps", "polish", "polish_moved"]))
    )
    unknown: dict[str, Any] = dict.fromkeys(known)
    return dataclasses.replace(made, **unknown)


@given(checkpoints())
def test_checkpoint_round_trip(tmp_path: Path, checkpoint: Checkpoint) -> None:
    path = tmp_path / "c.npz"
    records.write_checkpoint(path, checkpoint)
    back = records.read_checkpoint(path)
    for field in dataclasses.fields(Checkpoint):
        found, expected = getattr(back, field.name), getattr(checkpoint, field.name)
        assert type(found) is type(expected)
        assert np.array_equal(found, expected)
    assert back.content_hash() == checkpoint.content_hash()
    first = path.read_bytes()
    records.write_checkpoint(path, back)
    assert path.read_bytes() == first


def test_checkpoint_takes_numpy_scalars(folder: Path) -> None:
    scalars: dict[str, Any] = {"p": np.int64(5), "loss": np.float64(0.5), "fraction": 1}
    made = dataclasses.replace(a_checkpoint(), **scalars)
    records.write_checkpoint(folder / "c.npz", made)
    back = records.read_checkpoint(folder / "c.npz")
    assert (back.p, back.loss, back.fraction, back.n) == (5, 0.5, 1, 7)


def test_content_hash_is_the_network_and_not_its_history() -> None:
    made = a_checkpoint()
    assert dataclasses.replace(made, seed=9, loss=None).content_hash() == made.content_hash()
    assert dataclasses.replace(made, u=made.v, v=made.u).content_hash() != made.content_hash()
    assert dataclasses.replace(made, a=made.b, b=made.a).content_hash() != made.content_hash()


def as_saved(**changes: Any) -> dict[str, Any]:
    """A stranger's checkpoint, saved with numpy.savez; a change to None leaves that array out."""
    made = a_checkpoint()
    known = {name: getattr(made, name) for name in ("p", "K", "a", "b", "u", "v", "W")}
    return {name: value for name, value in {**known, **changes}.items() if value is not None}


def test_a_checkpoint_saved_with_numpy_is_read(folder: Path) -> None:
    np.savez(folder / "c.npz", **as_saved())
    back = records.read_checkpoint(folder / "c.npz")
    assert back.content_hash() == a_checkpoint().content_hash()
    assert (back.seed, back.loss, back.polish) == (None, None, None)


GOOD = a_checkpoint()
BAD_CHECKPOINTS: list[tuple[dict[str, Any], str]] = [
    ({"W": None}, "no array W (it has p, K, a, b, u, v)"),
    ({"p": None, "K": None}, "no array p, K"),
    ({"extra": np.zeros(3)}, "unknown array extra"),
    ({"format": "something else"}, "format 'something else', expected 'quadratic network"),
    ({"format": np.zeros(2)}, "format [0.0, 0.0]"),
    ({"p": 1}, "p is 1; it must be an integer, 2 or more"),
    ({"p": 5.0}, "p is 5.0; it must be an integer"),
    ({"p": np.array([5])}, "p is [5]; it must be an integer"),
    ({"p": 7}, "u has shape (3, 5), expected (3, 7) (p=7, K=3, n=7)"),
    ({"K": 0}, "K is 0; it must be an integer, 1 or more"),
    ({"K": 4}, "u has shape (3, 5), expected (4, 5)"),
    ({"W": GOOD.W.T}, "W has shape (3, 5), expected (5, 3)"),
    ({"v": GOOD.v[:2]}, "v has shape (2, 5), expected (3, 5)"),
    ({"u": GOOD.u.astype(np.float32)}, "u has type float32, expected float64; convert it: u.ast"),
    ({"a": GOOD.a.astype(np.float64)}, "a has type float64, expected int64"),
    ({"a": GOOD.a.astype(np.int32)}, "a has type int32, expected int64"),
    ({"a": GOOD.a[:-1]}, "b has shape (7,), expected (6,)"),
    ({"a": np.array(1)}, "a has shape (), expected (1,)"),
    ({"a": GOOD.a[:, None]}, "a has shape (7, 1), expected (7,)"),
    ({"u": np.full((3, 5), np.nan)}, "u is nan at (0, 0)"),
    ({"W": np.full((5, 3), -np.inf)}, "W is -inf at (0, 0)"),
    ({"a": np.full(7, 5)}, "a[0] is 5; values are 0..4 for p=5"),
    ({"b": np.array([0, 1, 2, -1, 3, 4, 0])}, "b[3] is -1; values are 0..4"),
    ({"a": np.full(7, 2), "b": np.full(7, 3)}, "pair (2, 3) is given twice"),
    ({"a": GOOD.a[:1], "b": GOOD.b[:1]}, "1 pairs; a network is measured on two pairs or more"),
    ({"a": GOOD.a[:0], "b": GOOD.b[:0]}, "0 pairs"),
    ({"fraction": 0.0}, "fraction is 0.0; it must be in (0, 1]"),
    ({"fraction": 1.5}, "fraction is 1.5"),
    ({"fraction": "all"}, "fraction is 'all'"),
    ({"seed": -1}, "seed is -1; it must be an integer, 0 or more"),
    ({"steps": 1.5}, "steps is 1.5"),
    ({"polish_steps": -1}, "polish_steps is -1"),
    ({"loss": -1.0}, "loss is -1.0; it must be a finite number, 0 or more"),
    ({"loss": np.nan}, "loss is nan"),
    ({"polish_moved": -0.5}, "polish_moved is -0.5; it must be a finite number"),
    ({"polish": 3}, "polish is 3; it must be text"),
]


@pytest.mark.parametrize(("changes", "words"), BAD_CHECKPOINTS)
def test_read_checkpoint_refuses(folder: Path, changes: dict[str, Any], words: str) -> None:
    np.savez(folder / "c.npz", **as_saved(**changes))
    with pytest.raises(RecordError, match=an_error(words)) as caught:
        records.read_checkpoint(folder / "c.npz")
    assert str(folder / "c.npz") in str(caught.value)


IN_MEMORY = [c for c, _ in BAD_CHECKPOINTS if c.keys() <= vars(GOOD).keys() and "W" not in c]


@pytest.mark.parametrize("changes", IN_MEMORY)
def test_write_checkpoint_refuses_the_same(folder: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(RecordError):
        records.write_checkpoint(folder / "c.npz", dataclasses.replace(GOOD, **changes))
    assert no_leftovers(folder)
