"""Records: read, write and hash. The one place that knows file formats.

Every write is atomic: it goes to a temporary name in the same folder, is flushed to the disk, and
then takes the old file's place. An interruption leaves the old file or the new one, never half of
one. Every read checks what it gets. Whatever goes wrong with a file is a RecordError: one line with
the file, the cause and the remedy.

The formats
  .json    one document, keys sorted, two spaces, newline at the end, no NaN
  .csv     one record a line under fixed, typed columns; floats by repr, so no bit is lost
  .jsonl   one JSON object a line, appended as measurements finish; a torn last line is reported
  .npz     named arrays, compressed, no pickle; same arrays and same zlib give the same bytes
  checkpoint: an .npz with the fields of Checkpoint, scalars as 0-d arrays, unknown ones left out

Symbols and shapes
  p     modulus, number of outputs             K     number of hidden neurons
  n     number of pairs                        a, b  (n,) int64: pair i is (a[i], b[i]), in 0..p-1
  u, v  (K, p) float64, input weights          W     (p, K) float64, output weights
"""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import math
import os
import platform
import secrets
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from importlib import metadata
from numbers import Integral, Real
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

Array = NDArray[np.float64]
PathLike = str | os.PathLike[str]

CHECKPOINT_FORMAT = "quadratic network checkpoint 1"


class RecordError(ValueError):
    """A file that cannot be read, written or trusted: file, cause (with the value), remedy."""

    def __init__(self, source: object, cause: str, remedy: str) -> None:
        super().__init__(" ".join(f"{source}: {cause}; {remedy}".split()))  # always one line


_DAMAGED = "the file is damaged: restore it, or make it again"
_FINITE = "a record holds finite numbers only"
_REMEDIES = {
    errno.ENOENT: "check the path",
    errno.EISDIR: "give the name of a file, not of a folder",
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST), "check the path: a folder in it is a file"),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS), "check the permissions, or choose another place"
    ),
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
        "free some space and run again; what was there before is unharmed",
    ),
}


def _from_oserror(path: PathLike, doing: str, error: OSError) -> RecordError:
    cause = f"cannot {doing} ({error.strerror or error})"
    return RecordError(path, cause, _REMEDIES.get(error.errno or 0, "check the path and the disk"))


# --- Bytes: atomic writes and hashes ------------------------------------------------------------


@contextmanager
def atomic_file(path: PathLike) -> Iterator[BinaryIO]:
    """Open a file for writing that appears under its name whole, or not at all.

    Missing folders are made. The bytes go to a hidden temporary file beside `path`; when the block
    ends without an error they are flushed to the disk and take the place of `path` (os.replace). On
    any error, KeyboardInterrupt included, the temporary file is removed and `path` is as it was.
    Raises RecordError for whatever the operating system refuses (permission, disk full, ...) and
    for a `path` that exists and is not a plain, writable file (a folder, a device).
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        _refuse_unwritable(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except OSError as error:
        raise _from_oserror(path, "write", error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _refuse_unwritable(target: Path) -> None:
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "it is a device or a pipe, which a record would replace")
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def write_bytes(path: PathLike, content: bytes) -> None:
    """Write `content` to `path`, atomically. Raises RecordError (see atomic_file)."""
    with atomic_file(path) as stream:
        stream.write(content)


def _read_bytes(path: PathLike) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _from_oserror(path, "read", error) from error


def sha256_file(path: PathLike) -> str:
    """SHA-256 of a file's bytes, 64 hex digits. Raises RecordError when it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise _from_oserror(path, "read", error) from error


def sha256_arrays(arrays: Mapping[str, Any]) -> str:
    """SHA-256 of named arrays: their names, types, shapes and values, 64 hex digits.

    arrays: name -> array of bool, integer, float32, float64 or text. The order of the names, the
    memory layout and the byte order do not count, nor (unlike for an .npz file) does the zlib.
    Raises RecordError for an array of another type.
    """
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = _canonical(name, arrays[name], "sha256_arrays")
        header = json.dumps([name, array.dtype.str, list(array.shape)])
        digest.update(f"{header}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def code_hash(paths: Sequence[PathLike]) -> str:
    """SHA-256 over source files: which code made a record, wherever it is checked out.

    Base names and contents count, line ends as newline; order and folders do not.
    Raises RecordError for an unreadable file or for two files of one name.
    """
    sources = {Path(path).name: path for path in paths}
    if len(sources) < len(paths):
        raise RecordError("code_hash", f"two files share a name in {paths}", "name each file once")
    digest = hashlib.sha256()
    for name in sorted(sources):
        content = _read_bytes(sources[name]).replace(b"\r\n", b"\n")
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """What a number may depend on besides the code.

    Keys: python, numpy, scipy, blas (name and version), blas_threads (asked for), platform.
    """
    blas = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": metadata.version("scipy"),
        "blas": f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip(),
        "blas_threads": os.environ.get("OPENBLAS_NUM_THREADS", "default"),
        "platform": f"{sys.platform} {platform.machine()}",
    }


# --- Text: json, jsonl, csv ---------------------------------------------------------------------


def _plain(value: Any, field: str, source: object) -> Any:
    """The same value in JSON's own types; refuses what JSON cannot hold, naming the field."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise RecordError(source, f"field {field} is {value!r}", _FINITE)
    if isinstance(value, Mapping):
        if odd := [key for key in value if not isinstance(key, str)]:
            raise RecordError(source, f"field {field} has the key {odd[0]!r}", "use text keys")
        return {key: _plain(value[key], f"{field}.{key}".lstrip("."), source) for key in value}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{field}[{i}]", source) for i, item in enumerate(value)]
    kind = type(value).__name__
    raise RecordError(source, f"field {field} is a {kind}", "convert it to numbers, text or lists")


def to_json(document: Any, source: object = "json", *, indent: int | None = 2) -> str:
    """The document as JSON text, keys sorted, newline at the end; numpy values are allowed.

    Raises RecordError naming the field (`networks[2].llc`) that is NaN, infinite or no JSON type.
    """
    plain = _plain(document, "", source)
    return json.dumps(plain, indent=indent, sort_keys=True, ensure_ascii=False) + "\n"


def write_json(path: PathLike, document: Any) -> None:
    """Write one JSON document, atomically. Raises RecordError (see to_json and atomic_file)."""
    write_bytes(path, to_json(document, path).encode())


def read_json(path: PathLike) -> Any:
    """Read one JSON document. Raises RecordError when missing, broken, or with a NaN in it."""
    content = _read_bytes(path)
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RecordError(path, f"not JSON ({error})", _DAMAGED) from error
    return _plain(document, "", path)


def write_jsonl(path: PathLike, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write records, one JSON object a line, atomically. Raises RecordError (see to_json)."""
    write_bytes(path, "".join(to_json(row, path, indent=None) for row in rows).encode())


def append_jsonl(path: PathLike, record: Mapping[str, Any]) -> str:
    """Append one record as one line, on the disk before this returns; makes a missing file.

    Complete records are never touched. A torn line that an earlier, killed append left behind is
    cut off first and returned (else ""); if this append fails, the file gets its old length back.
    Raises RecordError for a record JSON cannot hold and for what the operating system refuses.
    """
    line = to_json(record, path, indent=None).encode()
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a+b") as stream:
            stream.seek(0)
            complete, torn = _split_torn(stream.read())
            if torn:
                stream.truncate(len(complete))
        lead = b"\n" if complete and not complete.endswith(b"\n") else b""
        _append(path, lead + line, len(complete))
    except OSError as error:
        raise _from_oserror(path, "write", error) from error
    return torn.decode("utf-8", "replace")


def _append(path: PathLike, content: bytes, old_length: int) -> None:
    try:
        with open(path, "ab") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        os.truncate(path, old_length)
        raise


def _split_torn(content: bytes) -> tuple[bytes, bytes]:
    """Split off a last line without newline that is no JSON object: a killed append's leavings."""
    end = content.rfind(b"\n") + 1
    tail = content[end:]
    try:
        whole = not tail.strip() or isinstance(json.loads(tail), dict)
    except ValueError:  # broken JSON, or a character cut in two
        whole = False
    return (content, b"") if whole else (content[:end], tail)


def read_jsonl(path: PathLike) -> tuple[list[dict[str, Any]], str]:
    """Read the records of a .jsonl file: (complete records, the torn last line or "").

    A torn last line is what an interrupted append leaves: tell the user and measure that record
    again. Any other line that is no JSON object is damage: RecordError naming the line.
    """
    complete, torn = _split_torn(_read_bytes(path))
    records = []
    for number, line in enumerate(complete.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            record = error
        if not isinstance(record, dict):
            raise RecordError(path, f"line {number} is no JSON object", "restore or remove it")
        records.append(_plain(record, "", f"{path} line {number}"))
    return records, torn.decode("utf-8", "replace")


def _to_cell(value: Any, kind: type, where: str, source: object) -> str:
    """One csv cell; None is the empty cell, except in a text column."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None and kind is not str:
        return ""
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise RecordError(source, f"{where} is {value!r}", f"it must be a {kind.__name__}")
    if isinstance(value, float) and not math.isfinite(value):
        raise RecordError(source, f"{where} is {value!r}", _FINITE)
    if isinstance(value, str) and any(character in value for character in "\r\n\0"):
        raise RecordError(source, f"{where} is {value!r}", "a record is one line: no line ends")
    return ("true" if value else "false") if kind is bool else str(value)


def _from_cell(cell: str, kind: type, where: str, source: object) -> Any:
    if kind is str:
        return cell
    if cell == "":
        return None
    try:
        value = {"true": True, "false": False}[cell] if kind is bool else kind(cell)
    except (KeyError, ValueError) as error:
        cause = f"{where} is {cell!r}, not a {kind.__name__}"
        raise RecordError(source, cause, _DAMAGED) from error
    return _plain(value, where, source)


def write_csv(
    path: PathLike, columns: Mapping[str, type], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Write rows under fixed columns, atomically; floats by repr, so that no bit is lost.

    columns: name -> float, int, bool or str, in the order of the file. Each row has exactly these
    names. None is allowed outside text columns and is the empty cell.
    Raises RecordError naming row (from 1) and column for a missing, unknown, mistyped or
    non-finite value.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for number, row in enumerate(rows, start=1):
        if set(row) != set(columns):
            cause = f"row {number} differs from the columns in {sorted(set(row) ^ set(columns))}"
            raise RecordError(path, cause, "give every column, and no other")
        cells = (_to_cell(row[c], columns[c], f"row {number} column {c}", path) for c in columns)
        writer.writerow(cells)
    write_bytes(path, text.getvalue().encode())


def read_csv(path: PathLike, columns: Mapping[str, type]) -> list[dict[str, Any]]:
    """Read rows under the columns they were written with; see write_csv for `columns`.

    An empty cell is None outside text columns. Raises RecordError for other columns, a row of
    another length, or a cell that is not of its column's type.
    """
    try:
        text = _read_bytes(path).decode()
        lines = list(csv.reader(io.StringIO(text, newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise RecordError(path, f"not readable as csv ({error})", _DAMAGED) from error
    header = lines[0] if lines else []
    if header != list(columns):
        cause = f"columns are {header}, expected {list(columns)}"
        raise RecordError(path, cause, "it was written by another version: make it again")
    rows = []
    for number, line in enumerate(lines[1:], start=1):
        if len(line) != len(columns):
            cause = f"row {number} has {len(line)} cells, expected {len(columns)}"
            raise RecordError(path, cause, _DAMAGED)
        rows.append(
            {
                name: _from_cell(cell, kind, f"row {number} column {name}", path)
                for cell, (name, kind) in zip(line, columns.items(), strict=True)
            }
        )
    return rows


# --- Arrays: npz --------------------------------------------------------------------------------


_KINDS = "biufU"  # numpy's letters for bool, integer, unsigned, float, text


def _canonical(name: str, value: Any, source: object) -> NDArray[Any]:
    """The array in C order and little-endian, in one of the types a record holds."""
    array = np.asarray(value, order="C")
    other_float = array.dtype.kind == "f" and array.itemsize not in (4, 8)
    if array.dtype.kind not in _KINDS or other_float:
        remedy = "use bool, integer, float32, float64 or text"
        raise RecordError(source, f"array {name} has type {array.dtype}", remedy)
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def write_npz(path: PathLike, arrays: Mapping[str, Any]) -> None:
    """Write named arrays, compressed, atomically; in order of name and undated: same bytes again.

    arrays: name -> array of bool, integer, float32, float64 or text, any shape, floats finite.
    Raises RecordError naming the array.
    """
    with atomic_file(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        for name in sorted(arrays):
            array = _canonical(name, arrays[name], path)
            _refuse_nonfinite(name, array, path)
            content = io.BytesIO()
            npy.write_array(content, array, version=(1, 0), allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3  # the same on every system
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content.getbuffer(), compresslevel=6)


def _refuse_nonfinite(name: str, array: NDArray[Any], source: object) -> None:
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return
    where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
    raise RecordError(source, f"array {name} is {array[where]} at {where}", _FINITE)


def read_npz(path: PathLike) -> dict[str, NDArray[Any]]:
    """Read every array of an .npz file written here or by numpy.savez. Never unpickles.

    Raises RecordError for a missing file, a file that is no .npz, a truncated or damaged one
    (checksums are compared), an array of Python objects, NaN or infinity.
    """
    arrays = {}
    try:
        with open(path, "rb") as stream, zipfile.ZipFile(stream) as archive:
            for entry in archive.namelist():
                arrays[entry.removesuffix(".npy")] = _parse_npy(archive.read(entry))
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
        remedy = "it is no .npz, or is damaged: restore it, or make it again"
        raise RecordError(path, f"not readable as .npz ({error})", remedy) from error
    except RuntimeError as error:  # another compression, or encrypted
        raise RecordError(path, f"not readable ({error})", "save it with numpy.savez") from error
    except OSError as error:
        raise _from_oserror(path, "read", error) from error
    for name, array in arrays.items():
        _refuse_nonfinite(name, array, path)
    return arrays


def _parse_npy(content: bytes) -> NDArray[Any]:
    """One array from the bytes of an .npy file; checks its size before allocating anything."""
    stream = io.BytesIO(content)
    version = npy.read_magic(stream)
    if version != (1, 0):
        raise ValueError(f"array format {version}, expected (1, 0)")
    try:
        shape, fortran_order, dtype = npy.read_array_header_1_0(stream)
    except Exception as error:  # numpy parses Python literals here: many kinds of error
        raise ValueError(f"array header: {error}") from error
    if dtype.kind not in _KINDS:
        raise ValueError(f"an array of type {dtype}")
    size = math.prod(shape) * dtype.itemsize
    if len(content) - stream.tell() != size:
        raise ValueError(f"{len(content) - stream.tell()} bytes for an array of {size}")
    flat = np.frombuffer(content, dtype=dtype, offset=stream.tell())
    array = flat.reshape(shape, order="F" if fortran_order else "C")
    return array.astype(dtype.newbyteorder("="), order="C")  # a copy that can be written to


# --- Checkpoints --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A quadratic network's weights, the pairs it was trained on, and where they come from.

    p, K, a, b, u, v, W are the network: see the module's legend. The rest is None where unknown:
    fraction in (0, 1] of the p² pairs, seed of pairs and initial weights, loss L_n at these
    weights, training steps, polish (name of the descent without weight decay), polish_steps, and
    polish_moved, how far it moved the weights as a share of their norm before it.
    """

    p: int
    K: int
    a: NDArray[np.int64]
    b: NDArray[np.int64]
    u: Array
    v: Array
    W: Array
    fraction: float | None = None
    seed: int | None = None
    loss: float | None = None
    steps: int | None = None
    polish: str | None = None
    polish_steps: int | None = None
    polish_moved: float | None = None

    @property
    def n(self) -> int:
        """Number of pairs."""
        return int(np.size(self.a))

    def content_hash(self) -> str:
        """SHA-256 of the network itself (pairs and weights), whatever is known of its making."""
        return sha256_arrays({name: getattr(self, name) for name in ("a", "b", "u", "v", "W")})


_NETWORK = ("p", "K", "a", "b", "u", "v", "W")
_SCALARS = [f.name for f in fields(Checkpoint) if f.name not in _NETWORK[2:]]
_LEAST = {"p": 2, "K": 1, "seed": 0, "steps": 0, "polish_steps": 0}  # the integers


def write_checkpoint(path: PathLike, checkpoint: Checkpoint) -> None:
    """Write a checkpoint, atomically. Raises RecordError for one read_checkpoint would refuse."""
    _check(checkpoint, path)
    values = {f.name: getattr(checkpoint, f.name) for f in fields(checkpoint)}
    known = {name: value for name, value in values.items() if value is not None}
    write_npz(path, {"format": CHECKPOINT_FORMAT, **known})


def read_checkpoint(path: PathLike) -> Checkpoint:
    """Read a checkpoint and check all of it.

    Needs the arrays p, K, a, b, u, v, W of the module's legend; the other fields of Checkpoint may
    be absent, so `numpy.savez("mine.npz", p=11, K=33, a=a, b=b, u=u, v=v, W=W)` is a checkpoint.
    Raises RecordError for an unknown, truncated or damaged file, a missing or unknown array, a
    wrong shape or type, NaN or infinite weights, p < 2, K < 1, values of a or b outside 0..p-1, a
    pair given twice, fewer than two pairs.
    """
    arrays = read_npz(path)
    form = arrays.pop("format", np.asarray(CHECKPOINT_FORMAT))
    if form.shape != () or form.item() != CHECKPOINT_FORMAT:
        cause = f"format {form.tolist()!r}, expected {CHECKPOINT_FORMAT!r}"
        raise RecordError(path, cause, "it is another kind of file, or from another version")
    names = [f.name for f in fields(Checkpoint)]
    if missing := [name for name in _NETWORK if name not in arrays]:
        cause = f"no array {', '.join(missing)} (it has {', '.join(arrays) or 'none'})"
        raise RecordError(path, cause, f"a checkpoint holds {', '.join(_NETWORK)}")
    if unknown := [name for name in arrays if name not in names]:
        cause = f"unknown array {', '.join(unknown)}"
        raise RecordError(path, cause, f"a checkpoint holds {', '.join(names)}")
    scalars = {name: arrays[name].tolist() for name in _SCALARS if name in arrays}
    checkpoint = Checkpoint(**{**arrays, **scalars})
    _check(checkpoint, path)
    return checkpoint


def _check(c: Checkpoint, source: object) -> None:
    """Refuse a checkpoint that is not a quadratic network with its pairs."""
    _check_scalars(c, source)
    shapes = {"u": (c.K, c.p), "v": (c.K, c.p), "W": (c.p, c.K), "a": (c.n,), "b": (c.n,)}
    for name, shape in shapes.items():
        array = getattr(c, name)
        kind = np.dtype(np.int64 if name in "ab" else np.float64)
        if array.dtype != kind:
            remedy = f"convert it: {name}.astype(numpy.{kind.name})"
            raise RecordError(source, f"{name} has type {array.dtype}, expected {kind}", remedy)
        if array.shape != shape:
            cause = f"{name} has shape {array.shape}, expected {shape} (p={c.p}, K={c.K}, n={c.n})"
            raise RecordError(source, cause, "u and v are (K, p), W is (p, K), a and b are (n,)")
        _refuse_nonfinite(name, array, source)
    _check_pairs(c, source)


def _check_scalars(c: Checkpoint, source: object) -> None:
    for name in _SCALARS:
        value = getattr(c, name)
        if value is None and name not in _NETWORK:
            continue
        if name in _LEAST:
            good = isinstance(value, Integral) and int(value) >= _LEAST[name]
            remedy = f"it must be an integer, {_LEAST[name]} or more"
        elif name == "fraction":
            good = isinstance(value, Real) and 0.0 < float(value) <= 1.0
            remedy = "it must be in (0, 1]"
        elif name == "polish":
            good, remedy = isinstance(value, str), "it must be text"
        else:
            good = isinstance(value, Real) and 0.0 <= float(value) < math.inf
            remedy = "it must be a finite number, 0 or more"
        if not good:
            raise RecordError(source, f"{name} is {value!r}", remedy)


def _check_pairs(c: Checkpoint, source: object) -> None:
    if c.n < 2:
        raise RecordError(source, f"{c.n} pairs", "a network is measured on two pairs or more")
    for name, values in {"a": c.a, "b": c.b}.items():
        outside = np.flatnonzero((values < 0) | (values >= c.p))
        if len(outside):
            cause = f"{name}[{outside[0]}] is {values[outside[0]]}"
            raise RecordError(source, cause, f"values are 0..{c.p - 1} for p={c.p}")
    pairs, counts = np.unique(c.a * c.p + c.b, return_counts=True)
    if counts.max() > 1:
        twice = divmod(int(pairs[counts.argmax()]), c.p)
        raise RecordError(source, f"pair {twice} is given twice", "give each pair once")
