r"""``save`` and ``load`` models, embeddings and results.

A file is an uncompressed zip of ``manifest.json`` and one ``.npy`` member for each array. The
manifest has the versions, the structure of the object, and shape, type and SHA-256 of each array.
A file contains no code, and no name in it is resolved to code: classes come from a closed list, and
the user's functions are passed to ``load`` again. Gram matrices, their factors and caches are not
stored but computed again on loading.

>>> import numpy as np, tempfile, pathlib
>>> from kernelbayes import Gaussian, embed, load, save
>>> mu = embed(np.arange(4.0), Gaussian(1.0))
>>> with tempfile.TemporaryDirectory() as folder:
...     save(mu, pathlib.Path(folder) / "mu.kb")
...     again = load(pathlib.Path(folder) / "mu.kb")
>>> bool(again.mean() == mu.mean())
True
"""

import hashlib
import io
import json
import math
import os
import re
import secrets
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from kernelbayes.files.known import KINDS_STORED, Node
from kernelbayes.files.tree import Decoder, Encoder

# Version of the format. Files of this and all older versions can be read. From 2 on, the arrays
# that ``derived`` names are left out. From 3 on, learned likelihoods have other fields. From 4 on,
# windows are stored without what they repeat.
FORMAT = 4
MANIFEST = "manifest.json"
MEMBER = re.compile(r"[0-9]{1,6}\.npy")
# Most bytes of a .npy header: NumPy writes 118 for all types that are stored here.
LARGEST_HEADER = 1024


def save(obj: object, path: str | os.PathLike[str]) -> None:
    """Write a fitted model, an embedding, beliefs, a kernel or a result to a file.

    The file is written next to ``path`` and then renamed, so that either the old or the new file is
    complete whatever happens. Your own functions (a ``Custom`` kernel, the transition of a Monte
    Carlo filter) are not stored; :func:`load` says what to pass.

    Parameters
    ----------
    obj : object
        Anything this library returns.
    path : path
        The usual extension is ``.kb``.
    """
    path = checked_path(path)
    arrays: list[npt.NDArray[Any]] = []
    encoder = Encoder(arrays)
    tree = encoder.encode(obj, "object")
    with replaced(path) as file:
        _write(file, tree, arrays, encoder.functions)


def checked_path(path: str | os.PathLike[str]) -> Path:
    """Path of a file that can be written; an error if it is a folder or its folder is missing."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be the path of a file, got {type(path).__name__}")
    path = Path(path)
    if path.is_dir() or not path.parent.is_dir():
        raise ValueError(f"path must be a file in a folder that exists, got {str(path)!r}")
    return path


@contextmanager
def replaced(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file next to a path, and rename it to the path when all is written."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with beside.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def load(path: str | os.PathLike[str], **functions: Callable[..., Any]) -> Any:
    """Read a file written by :func:`save`; the object gives identical numbers.

    Parameters
    ----------
    path : path
    **functions : callables
        Your own functions that the object used, under the names in the error message.

    Raises
    ------
    ValueError
        If the file is truncated, altered, of a newer version, or not a kernelbayes file.
    """
    path = Path(path)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            with zipfile.ZipFile(file) as archive:
                return _read(archive, size, functions)
        except (_BadFile, MemoryError) as error:
            raise ValueError(f"{path}: {error}") from None
        except (zipfile.BadZipFile, EOFError, NotImplementedError, OSError, RuntimeError) as error:
            raise ValueError(f"{path}: truncated, altered or not a file of kernelbayes") from error
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
            if isinstance(error, _Asked):
                raise
            raise ValueError(f"{path}: altered; its contents do not fit together") from error


class _BadFile(Exception):
    """What is wrong with a file, as a message for the user."""


class _Asked(ValueError):
    """The user's functions are missing."""


def _write(file: Any, tree: Node, arrays: list[npt.NDArray[Any]], functions: list[str]) -> None:
    from kernelbayes import __version__  # the package imports this module

    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        listed = []
        for i, array in enumerate(arrays):
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, array, allow_pickle=False)
            data = buffer.getbuffer()
            archive.writestr(zipfile.ZipInfo(f"{i}.npy"), data)
            digest = hashlib.sha256(data).hexdigest()
            listed.append({"shape": array.shape, "dtype": array.dtype.str, "sha256": digest})
        manifest = {
            "format": FORMAT,
            "version": __version__,
            "functions": functions,
            "arrays": listed,
            "object": tree,
        }
        text = json.dumps(manifest).encode()
        archive.writestr(zipfile.ZipInfo(MANIFEST), text)
        archive.comment = hashlib.sha256(text).hexdigest().encode()


def _read(archive: zipfile.ZipFile, size: int, functions: Mapping[str, Any]) -> Any:
    """Return the object, after checking every declared size against the size of the file."""
    infos = archive.infolist()
    if sum(info.file_size for info in infos) > size:
        raise _BadFile(f"altered; its parts are declared larger than the file, {size} bytes")
    if any(info.compress_type != zipfile.ZIP_STORED for info in infos):
        raise _BadFile("not a file of kernelbayes; those are not compressed")
    names = [info.filename for info in infos]
    if MANIFEST not in names or len(set(names)) < len(names):
        raise _BadFile("not a file of kernelbayes; it has no manifest")
    strange = [n for n in names if n != MANIFEST and not MEMBER.fullmatch(n)]
    if strange:
        raise _BadFile(f"altered; it has a member {strange[0]!r} that does not belong there")
    text = archive.read(MANIFEST)
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError):
        raise _BadFile("altered; its manifest cannot be read") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        raise _BadFile("not a file of kernelbayes; its manifest has no format version")
    if manifest["format"] > FORMAT:
        raise _BadFile(
            f"written by kernelbayes {manifest.get('version')}, whose format "
            f"{manifest['format']} is newer than {FORMAT}; upgrade kernelbayes to read it"
        )
    if archive.comment.decode("ascii", "replace") != hashlib.sha256(text).hexdigest():
        raise _BadFile("altered; its manifest is not the one that was written")
    missing = [name for name in manifest["functions"] if name not in functions]
    if missing:
        asked = ", ".join(f"{name}=..." for name in manifest["functions"])
        raise _Asked(
            f"functions are not stored in files, and this model needs {', '.join(missing)}; "
            f"read it with load(path, {asked})"
        )
    unknown = sorted(set(functions) - set(manifest["functions"]))
    if unknown:
        raise _Asked(f"the file needs {manifest['functions'] or 'no functions'}, not {unknown}")
    arrays = list(_arrays(archive, manifest["arrays"]))
    try:
        return Decoder(arrays, functions).decode(manifest["object"])
    except RecursionError:
        raise _BadFile("altered; its contents are nested too deeply") from None
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        if manifest["format"] == FORMAT:
            raise
        raise _BadFile(
            f"written by an older version of kernelbayes, in format {manifest['format']}, which "
            "stored this model in another way; fit it again"
        ) from error


def _arrays(archive: zipfile.ZipFile, listed: list[dict[str, Any]]) -> Iterator[npt.NDArray[Any]]:
    """Arrays of a file, each checked against the manifest before memory is allocated."""
    for i, entry in enumerate(listed):
        data = archive.read(f"{i}.npy")
        if hashlib.sha256(data).hexdigest() != entry["sha256"]:
            raise _BadFile(f"altered; array {i} is not the one that was written")
        stream = io.BytesIO(data)
        major, _ = np.lib.format.read_magic(stream)
        form = np.lib.format
        read = form.read_array_header_1_0 if major == 1 else form.read_array_header_2_0
        shape, fortran, dtype = read(stream, max_header_size=LARGEST_HEADER)
        if dtype.kind not in KINDS_STORED or dtype.hasobject:
            raise _BadFile(f"altered; array {i} has type {dtype}, which is never written")
        if list(shape) != list(entry["shape"]) or dtype.str != entry["dtype"]:
            raise _BadFile(f"altered; the shape or type of array {i} is not that in the manifest")
        if math.prod(shape) * dtype.itemsize != len(data) - stream.tell():
            raise _BadFile(f"altered; the declared size of array {i} is wrong")
        flat = np.frombuffer(data, dtype=dtype, offset=stream.tell())
        yield flat.reshape(shape, order="F" if fortran else "C").copy(order="K")
