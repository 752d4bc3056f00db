"""Download files into the cache of the package `cached_path`."""

import socket
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from elmo_plugin.bilm.files.stderr import stderr

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

    A cached file of a released biLM is used without asking the server. If it is not cached, it is
    downloaded from one of two addresses, and must have the known size. For other files,
    `cached_path` asks the server for a newer version. Without a network, a cached file is used.
    Messages on stderr begin with `argument`, the name of the caller's argument. Raise a
    `FileNotFoundError` with the addresses and the reasons if the file cannot be downloaded.
    """
    try:
        import cached_path
    except ImportError as error:
        raise FileNotFoundError(
            f"{url} needs the package cached_path to be fetched (pip install 'elmo_plugin[hub]')"
        ) from error
    addresses = _addresses(url)

    def from_cache(address: str, message: str) -> Path | None:
        cached = cached_path.find_latest_cached(address)
        if cached is None or _wrong_size(cached, url) is not None:
            return None
        print(f"{argument}: {message} found in the cache: {cached}", file=stderr())
        return Path(cached)

    if len(addresses) > 1:
        for address in addresses:
            if cached := from_cache(address, f"{url},"):
                return cached
    problems = []
    for address in addresses:
        print(f"{argument}: {address}", file=stderr())
        try:
            _check_reachable(address)
            path = Path(cached_path.cached_path(address))
        except Exception as error:  # each download library raises its own errors
            if isinstance(error, ConnectionError) and (cached := from_cache(address, f"{error};")):
                return cached
            problems.append(f"{address} cannot be fetched ({type(error).__name__}: {error})")
            continue
        problem = _wrong_size(path, url)
        if problem is None:
            return path
        problems.append(problem)
    raise FileNotFoundError("; ".join(problems))


def _addresses(url: str) -> list[str]:
    for released in RELEASED:
        if url.startswith(released):
            name = url.removeprefix(released)
            return [url, *(other + name for other in RELEASED if other != released)]
    return [url]


def _wrong_size(path: Path, url: str) -> str | None:
    expected = RELEASED_BYTES.get(url.rpartition("/")[2]) if len(_addresses(url)) > 1 else None
    found = Path(path).stat().st_size
    if expected is None or found in expected:
        return None
    return (
        f"{path}, which came from {url}, has {found} bytes, expected {expected.start} or little "
        "more: delete it to have it fetched again"
    )


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
