"""Read HDF5 files from untrusted sources, without following links to other files."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py

from elmo_plugin.bilm.files.plain_tensors import whole_file

# Filters that are built into HDF5 or h5py. For any other filter, HDF5 would load and run a plugin.
FILTERS = (
    h5py.h5z.FILTER_DEFLATE,
    h5py.h5z.FILTER_SHUFFLE,
    h5py.h5z.FILTER_FLETCHER32,
    h5py.h5z.FILTER_LZF,
)
LAYOUTS = (h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED)
# HDF5 allocates whole chunks. A chunk may be larger than its dataset by at most this many bytes.
CHUNK_BYTES = 1 << 20


@contextmanager
def plain_hdf5(path: str | Path, kind: str) -> Iterator[dict[str, h5py.Dataset]]:
    """
    Context manager that opens an HDF5 file and yields a dict of its datasets by full name. `kind`
    describes the file in messages, such as "weight file".

    HDF5 follows links to other files and reads datasets stored there, so that a malicious file
    could read any other; both are refused. Raise the errors of `whole_file`, also in the block, and
    a `ValueError` for a link, or a dataset that is incomplete, elsewhere, or compressed by a
    plugin.
    """
    with whole_file(path, kind, "HDF5 file"), h5py.File(path, "r") as file:
        yield _datasets(file.id, str(path))


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
                if address not in seen:  # a group may contain itself
                    seen.add(address)
                    groups.append((f"{key}/", item))
    return found


def _check_plain(dataset: h5py.h5d.DatasetID, name: str) -> None:
    plan = dataset.get_create_plist()
    # This check comes first: reading the shape of a virtual dataset opens other files.
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
        # HDF5 reads zeros for chunks that were never written.
        raise ValueError(f"{name} was not written to its end, expected a whole dataset")
