"""URLs to local files, in the cache that `cached_path` keeps."""

import socket
import sys
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

# One bucket by two names; AllenNLP 0.9 and before used the second.
RELEASED = (
    "https://allennlp.s3.amazonaws.com/models/elmo/",
    "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/",
)
# What the released weight files have. The Original's size stands in the logs of downloads; the
# others are four bytes for each parameter, and less than 64 KiB of names and places beside them.
RELEASED_BYTES = {
    "elmo_2x1024_128_2048cnn_1xhighway_weights.hdf5": range(54_373_184, 54_438_720),
    "elmo_2x2048_256_2048cnn_1xhighway_weights.hdf5": range(112_110_912, 112_176_448),
    "elmo_2x4096_512_2048cnn_2xhighway_weights.hdf5": range(374_434_792, 374_434_793),
    "elmo_2x4096_512_2048cnn_2xhighway_5.5B_weights.hdf5": range(374_403_392, 374_468_928),
}
SECONDS_TO_CONNECT = 10.0


def fetch(url: str, argument: str) -> Path:
    """
    The file at a URL. A released biLM's is taken from the cache without asking the network, tried
    at a second address, and its size compared. Any other is asked for as `cached_path` does it,
    unless the network is away and the file in the cache.

    # Parameters

    url : `str`
        Any that `cached_path` takes.
    argument : `str`
        The argument that gave it, for what is said on stderr.

    # Raises

    `FileNotFoundError`
        If it cannot be had; the text says from where it was tried and why not.
    """
    try:
        import cached_path
    except ImportError as error:
        raise FileNotFoundError(
            f"{url} needs the package cached_path to be fetched (pip install 'elmo_plugin[hub]')"
        ) from error
    addresses = _addresses(url)
    problems = []
    if len(addresses) > 1:
        for address in addresses:
            cached = cached_path.find_latest_cached(address)
            if cached is not None and (problem := _wrong_size(cached, url)) is None:
                print(f"{argument}: {url}, found in the cache: {cached}", file=sys.stderr)
                return Path(cached)
    for address in addresses:
        print(f"{argument}: {address}", file=sys.stderr)
        try:
            _check_reachable(address)
        except ConnectionError as error:
            cached = cached_path.find_latest_cached(address)
            if cached is not None and _wrong_size(cached, url) is None:
                print(f"{argument}: {error}; found in the cache: {cached}", file=sys.stderr)
                return Path(cached)
            problems.append(f"{address} cannot be fetched ({type(error).__name__}: {error})")
            continue
        try:
            path = Path(cached_path.cached_path(address))
        except Exception as error:  # of every library that fetches something
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
    """Whether there is a network at all: `cached_path` tries for more than a minute."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or urllib.request.getproxies():
        return
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), SECONDS_TO_CONNECT).close()
    except OSError as error:
        raise ConnectionError(f"{parts.hostname} cannot be reached: {error}") from error
