"""Read single files of AllenNLP's archives, `model.tar.gz`."""

import tarfile
import zlib
from pathlib import Path


def read_member(archive: Path, name: str) -> bytes | None:
    """
    Return the content of a file in an archive, `None` if it has none; `./config.json`, as `tar`
    writes it, counts as `config.json`. Raise a `ValueError` if the archive is damaged.
    """
    try:
        with tarfile.open(archive, "r:gz") as members:
            for member in reversed(members.getmembers()):  # the last of a name counts
                if member.isfile() and member.name.removeprefix("./") == name:
                    file = members.extractfile(member)
                    assert file is not None
                    return file.read()
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise ValueError(f"{archive} is damaged: {error}") from error
    return None
