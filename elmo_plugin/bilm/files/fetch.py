"""Download files into the cache of the package `cached_path`."""

import contextlib
import hashlib
import os
import socket
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from elmo_plugin.bilm.files.stderr import stderr

# Variable with another place of the released files, with the same names below it: a folder, or an
# address such as `hf://owner/name`.
MIRROR = "ELMO_PLUGIN_WEIGHTS"
# Two addresses of the same files; AllenNLP 0.9 and earlier used the second.
RELEASED = (
    "https://allennlp.s3.amazonaws.com/models/elmo/",
    "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/",
)
# Sizes of the released weight files in bytes. The Original's is known exactly; the others have four
# bytes per parameter and less than 64 KiB more.
RELEASED_BYTES = {
    "elmo_2x1024_128_2048cnn_1xhighway_weights.hdf5": range(54_373_184, 54_438_720),
    "elmo_2x2048_256_2048cnn_1xhighway_weights.hdf5": range(112_110_912, 112_176_448),
    "elmo_2x4096_512_2048cnn_2xhighway_weights.hdf5": range(374_434_792, 374_434_793),
    "elmo_2x4096_512_2048cnn_2xhighway_5.5B_weights.hdf5": range(374_403_392, 374_468_928),
}
SECONDS_TO_CONNECT = 10.0


def fetch(url: str, argument: str) -> Path:
    """
    Return the local path of the file at a URL that `cached_path` supports; download it if needed.

    A file of a released biLM comes from the folder or address in the environment variable
    `ELMO_PLUGIN_WEIGHTS`, if it is set, or from the cache, or one of two addresses; its size must
    be the known one. For other files, `cached_path` asks the server for a newer version; without a
    network, the cached file is used. If there is a file of the same name with `.sha256` added, a
    file that was just downloaded must have the SHA-256 in it.

    Progress on stderr begins with the name of the caller's `argument`. Raise a `FileNotFoundError`
    with the addresses and the reasons if no address gives the right file.
    """
    addresses, mirror, expected = [url], None, None
    is_released = url.startswith(RELEASED)
    if is_released:
        name = url.removeprefix(RELEASED[0]).removeprefix(RELEASED[1])
        addresses += [place + name for place in RELEASED if place + name != url]
        expected = RELEASED_BYTES.get(url.rpartition("/")[2])
        if place := os.environ.get(MIRROR):
            mirror = f"{place.rstrip('/')}/{name}"
            addresses.insert(0, mirror)

    def wrong_size(path: Path) -> str | None:
        found = path.stat().st_size
        if expected is None or found in expected:
            return None
        return (
            f"{path}, which came from {url}, has {found} bytes, expected {expected.start} or "
            "little more: delete it to have it fetched again"
        )

    if mirror is not None and "://" not in mirror:
        path = Path(mirror).expanduser()
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}, where {MIRROR} has {url}")
        beside = path.with_name(f"{path.name}.sha256")
        known = beside.read_text("utf-8", "replace") if beside.is_file() else ""
        if problem := wrong_size(path) or _wrong_sum(path, known, str(path), argument):
            raise FileNotFoundError(problem)
        return path
    try:
        import cached_path
    except ImportError as error:
        raise FileNotFoundError(
            f"{url} needs the package cached_path to be fetched (pip install 'elmo_plugin[hub]')"
        ) from error

    def from_cache(address: str, message: str) -> Path | None:
        cached = cached_path.find_latest_cached(address)
        if cached is None or wrong_size(cached) is not None:
            return None
        _say(f"{argument}: {message} found in the cache: {cached}")
        return Path(cached)

    for address in addresses if is_released else ():
        if cached := from_cache(address, f"{url},"):
            return cached
    problems = []
    for address in addresses if mirror is None else [mirror]:
        _say(f"{argument}: {address}")
        try:
            _check_reachable(address)
            before = cached_path.find_latest_cached(address)
            path = Path(cached_path.cached_path(address))
        except Exception as error:  # each download library raises its own errors
            if isinstance(error, ConnectionError) and (cached := from_cache(address, f"{error};")):
                return cached
            problems.append(f"{address} cannot be fetched ({type(error).__name__}: {error})")
            continue
        problem = wrong_size(path)
        if problem is None and path != before:
            known = ""
            with contextlib.suppress(Exception):  # each library has its error for a missing file
                beside = Path(cached_path.cached_path(f"{address}.sha256"))
                known = beside.read_text("utf-8", "replace")
            problem = _wrong_sum(path, known, address, argument)
            if problem is not None:
                path.unlink()  # or the next call would find it in the cache
        if problem is None:
            return path
        problems.append(problem)
    advice = f"; the variable {MIRROR} may name another place" if is_released else ""
    raise FileNotFoundError("; ".join(problems) + advice)


def _wrong_sum(path: Path, known: str, address: str, argument: str) -> str | None:
    """
    Print a file's SHA-256. Return a message if it is another than in `known`, the text of
    `sha256sum`.
    """
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    words = known.split()
    if not words:
        _say(f"{argument}: SHA-256 {found}, with none beside it to compare")
        return None
    if words[0].lower() != found:
        return f"{address} has the SHA-256 {found}, expected {words[0]}, as {address}.sha256 has it"
    _say(f"{argument}: SHA-256 {found}, as in {address}.sha256")
    return None


def _say(text: str) -> None:
    print(text, file=stderr())


def _check_reachable(url: str) -> None:
    """
    Raise a `ConnectionError` within seconds if the server cannot be reached; `cached_path` would
    retry for over a minute.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or urllib.request.getproxies():
        return
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), SECONDS_TO_CONNECT).close()
    except OSError as error:
        raise ConnectionError(f"{parts.hostname} cannot be reached: {error}") from error
