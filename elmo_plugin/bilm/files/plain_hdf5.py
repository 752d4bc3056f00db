"""HDF5 files of others: only what stands in the file itself is read."""

import errno
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py

# h5py's own and those of every HDF5 library. HDF5 looks for any other on disk, as code to run.
FILTERS = (
    h5py.h5z.FILTER_DEFLATE,
    h5py.h5z.FILTER_SHUFFLE,
    h5py.h5z.FILTER_FLETCHER32,
    h5py.h5z.FILTER_LZF,
)
LAYOUTS = (h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED)
# What a chunk may have beyond its dataset, which may be smaller than a chunk.
CHUNK_BYTES = 1 << 20


@contextmanager
def plain_hdf5(path: str | Path, kind: str) -> Iterator[dict[str, h5py.Dataset]]:
    """
    Opens an HDF5 file for reading, if all that it holds are groups and plain datasets. HDF5 knows
    links to other files, datasets kept in other files, and datasets made of parts of other files,
    and follows them without a word: a weight file could read any file of its user.

    # Parameters

    path : `str | Path`
        The file.
    kind : `str`
        What it should be, for errors: a "weight file".

    # Returns

    `Iterator[dict[str, h5py.Dataset]]`
        Every dataset by its whole name, while the file is open. `file.attrs` is `.file.attrs` of
        any of them.

    # Raises

    `FileNotFoundError`
        If there is no such file.
    `ValueError`
        If it is not a whole HDF5 file, or holds a link, or a dataset that is not plain. What HDF5
        raises in the block becomes one, too.
    `MemoryError`
        If memory runs out in the block; the text names the file.
    """
    if not Path(path).is_file():  # a FIFO would wait for ever
        raise FileNotFoundError(f"there is no {kind} {path}")
    try:
        with h5py.File(path, "r") as file:
            yield _datasets(file.id, str(path))
    except MemoryError as error:
        raise MemoryError(f"{path}: there is not enough memory to read it: {error}") from error
    except ValueError as error:
        if str(error).startswith(str(path)):
            raise
        raise _not_whole(path, kind, error) from error
    except PermissionError as error:
        raise PermissionError(error.errno, "cannot be read", str(path)) from error
    # h5py's, by where in the file something is wrong.
    except (OSError, RuntimeError, LookupError, TypeError, ArithmeticError) as error:
        if "allocate memory" in str(error) or getattr(error, "errno", None) == errno.ENOMEM:
            raise MemoryError(f"{path}: there is not enough memory to read it: {error}") from error
        raise _not_whole(path, kind, error) from error


def _not_whole(path: str | Path, kind: str, error: Exception) -> ValueError:
    return ValueError(f"{path} is not a whole HDF5 file, expected a {kind}: {error}")


def _datasets(root: h5py.h5g.GroupID, path: str) -> dict[str, h5py.Dataset]:
    found: dict[str, h5py.Dataset] = {}
    groups, seen = [("", root)], {h5py.h5o.get_info(root).addr}
    while groups:
        prefix, group = groups.pop()
        for name in group:
            key = prefix + name.decode("utf-8", "backslashreplace")
            if group.links.get_info(name).type != h5py.h5l.TYPE_HARD:
                raise ValueError(
                    f"{path}: {key[:100]} is a link, expected only groups and datasets of the "
                    "file itself"
                )
            item = h5py.h5o.open(group, name)
            if isinstance(item, h5py.h5d.DatasetID):
                _check_plain(item, f"{path}: {key[:100]}")
                found[key] = h5py.Dataset(item)
            elif isinstance(item, h5py.h5g.GroupID):
                address = h5py.h5o.get_info(item).addr
                if address not in seen:  # a group may hold itself
                    seen.add(address)
                    groups.append((f"{key}/", item))
    return found


def _check_plain(dataset: h5py.h5d.DatasetID, name: str) -> None:
    plan = dataset.get_create_plist()
    # First, since asking a virtual dataset for its shape opens the files that it is made of.
    if plan.get_layout() not in LAYOUTS or plan.get_external_count():
        raise ValueError(f"{name} is kept in other files, expected a plain dataset")
    for index in range(plan.get_nfilters()):
        number = plan.get_filter(index)[0]
        if number not in FILTERS:
            raise ValueError(f"{name} needs the HDF5 filter {number}, expected gzip, lzf or none")
    num_bytes = math.prod(dataset.shape) * dataset.dtype.itemsize
    if plan.get_layout() == h5py.h5d.CHUNKED:
        chunk = plan.get_chunk()
        if math.prod(chunk) * dataset.dtype.itemsize > num_bytes + CHUNK_BYTES:
            raise ValueError(
                f"{name} has shape {dataset.shape} in chunks of {chunk}, expected smaller chunks"
            )
        written = dataset.get_num_chunks()
        whole = math.prod(-(-size // step) for size, step in zip(dataset.shape, chunk))
    else:
        written, whole = dataset.get_storage_size(), num_bytes
    if written < whole:
        # HDF5 reads zeros there.
        raise ValueError(f"{name} was not written to its end, expected a whole dataset")
