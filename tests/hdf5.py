"""Everything in an HDF5 file."""

import h5py


def arrays(path):
    """All data sets by name."""
    found = {}

    def read(name, item):
        if isinstance(item, h5py.Dataset):
            found[name] = item[...]

    with h5py.File(path) as file:
        file.visititems(read)
    return found
