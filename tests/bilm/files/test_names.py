"""Names, paths and URLs to local files; no test fetches anything."""

import hashlib
import sys
from pathlib import Path

import cached_path
import pytest
import torch

from elmo_plugin.bilm.files import fetch as fetching
from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.files.names import NAMED_BILMS, find_options, find_weights
from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.use.elmo import Elmo
from tests.tiny_bilm import OPTIONS, write

URLS = ("https://example.org/bilm/options.json", "https://example.org/bilm/weights.hdf5")


@pytest.fixture
def files(tmp_path):
    return write(tmp_path)


@pytest.fixture
def served(files, monkeypatch):
    """`cached_path` finds the tiny biLM at every URL, and keeps a list of what was asked for."""
    asked = []

    def fetch(url, *_, **__):
        if str(url).endswith(".sha256"):
            raise FileNotFoundError(url)
        asked.append(str(url))
        return files.options if str(url).endswith("options.json") else files.weights

    monkeypatch.setattr(cached_path, "cached_path", fetch)
    monkeypatch.setattr(fetching, "RELEASED_BYTES", {})
    monkeypatch.setattr(fetching, "_check_reachable", lambda url: None)
    return asked


@pytest.fixture
def offline(monkeypatch):
    def fail(url, *_, **__):
        raise ConnectionError("Name or service not known")

    monkeypatch.setattr(fetching, "_check_reachable", fail)
    monkeypatch.setattr(cached_path, "cached_path", fail)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache; `keep(url, file)` puts a file there as `cached_path` does."""
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setattr(cached_path.util, "get_cache_dir", lambda: folder)

    def keep(url, content):
        path = folder / cached_path.resource_to_filename(url, '"an etag"')
        path.write_bytes(content)
        path.with_name(path.name + ".json").write_text("{}")
        path.with_name(path.name + ".lock").write_text("")
        return path

    return keep


def test_names():
    assert list(NAMED_BILMS) == ["embedded", "small", "medium", "original", "5.5B"]
    for name, (options, weights) in NAMED_BILMS.items():
        if name != "embedded":
            assert options.startswith("https://allennlp.s3.amazonaws.com/models/elmo/")
            assert options.endswith("_options.json")
            assert weights == options.replace("_options.json", "_weights.hdf5")
    # Where AllenNLP's ElmoTokenEmbedder looks.
    from allennlp.modules.token_embedders import ElmoTokenEmbedder

    assert ElmoTokenEmbedder.__init__.__defaults__[:2] == NAMED_BILMS["original"]


SMALL_URLS = list(NAMED_BILMS["small"])
CONTENT = options_dict(OPTIONS)
HERE = ("{0.options}", "{0.weights}")
# Both arguments, and the URLs that are asked for.
GIVEN = [
    (*HERE, []),
    (*map(Path, HERE), []),
    ("~/options.json", "~/weights.hdf5", []),
    (CONTENT, HERE[1], []),
    (*URLS, list(URLS)),
    ("small", None, SMALL_URLS),
    (None, "small", SMALL_URLS),
    ("small", "small", SMALL_URLS),
    (HERE[0], "small", SMALL_URLS[1:]),
]


@pytest.mark.parametrize(("options", "weights", "asked"), GIVEN)
def test_names_paths_urls_and_content(options, weights, asked, files, served, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(Path(files.options).parent))
    given = [
        type(one)(str(one).format(files)) if isinstance(one, (str, Path)) else one
        for one in (options, weights)
    ]
    assert find_options(*given) == OPTIONS
    assert find_weights(*given) == Path(files.weights)
    assert served == asked
    said = capsys.readouterr().err
    assert [url for url in asked if url not in said] == []
    one, other = load_bilm(*given), load_bilm(*files)
    assert all(map(torch.equal, one.state_dict().values(), other.state_dict().values()))


def test_content_of_options_needs_no_weights():
    assert find_weights(CONTENT, None) is None


def test_no_name_at_all_is_the_original(served):
    Elmo()
    assert served == list(NAMED_BILMS["original"])
    load_bilm(default="medium")
    assert served[2:] == list(NAMED_BILMS["medium"])


ADVICE = "the path of a local file, or the name 'embedded'"


@pytest.mark.parametrize("name", ["~nosuchuser/x", "x" * 5000, "x/" * 2500], ids=["~", "x", "x/"])
def test_a_path_that_can_be_none_is_a_missing_file(files, name):
    for argument, given in (
        ("options_file", (name, files.weights)),
        ("weight_file", (files.options, name)),
        ("options_file", (name,)),
    ):
        message = f"{argument}: there is no file {name}, .*{ADVICE}"
        with pytest.raises(FileNotFoundError, match=message):
            load_bilm(*given)


def test_an_unreachable_url_says_how_to_give_a_local_file(files, offline):
    for given, argument, url in (
        (URLS, "options_file", URLS[0]),
        ((files.options, URLS[1]), "weight_file", URLS[1]),
        (("small",), "options_file", NAMED_BILMS["small"][0]),
    ):
        why = f"{url} cannot be fetched .*ConnectionError: Name"
        with pytest.raises(FileNotFoundError, match=f"{argument}: {why}.*give {argument} {ADVICE}"):
            load_bilm(*given)


def test_cached_path_is_needed_for_urls_alone(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "cached_path", None)
    load_bilm(*files)
    with pytest.raises(FileNotFoundError, match="needs the package cached_path"):
        load_bilm(*URLS)


def content(path):
    return Path(path).read_bytes()


def test_a_named_bilm_in_the_cache_starts_without_the_network(files, cache, monkeypatch, capsys):
    monkeypatch.setattr(fetching, "RELEASED_BYTES", {})

    def fail(*_, **__):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(cached_path, "cached_path", fail)
    monkeypatch.setattr(fetching.socket, "create_connection", fail)
    options, weights = NAMED_BILMS["original"]
    cache(options, content(files.options))
    # As AllenNLP 0.9 would have left it.
    other = weights.replace("allennlp.s3.amazonaws.com", "s3-us-west-2.amazonaws.com/allennlp")
    kept = cache(other, content(files.weights))
    assert load_bilm("original").options == OPTIONS
    assert find_weights("original", None) == kept
    assert f"weight_file: {weights}, found in the cache: {kept}" in capsys.readouterr().err


def test_any_other_url_in_the_cache_is_read_where_the_network_is_away(
    files, cache, offline, capsys
):
    kept = cache(URLS[0], content(files.options))
    assert find_options(*URLS) == OPTIONS
    assert f"found in the cache: {kept}" in capsys.readouterr().err


def test_a_second_address_is_tried(files, served, monkeypatch):
    fetch = cached_path.cached_path

    def forbidden_at_first(url, *_, **__):
        path = fetch(url)
        if str(url).startswith("https://allennlp.s3"):
            raise PermissionError("403")
        return path

    monkeypatch.setattr(cached_path, "cached_path", forbidden_at_first)
    assert find_weights("small", None) == Path(files.weights)
    first = NAMED_BILMS["small"][1]
    assert served == [
        first,
        "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/2x1024_128_2048cnn_1xhighway/"
        "elmo_2x1024_128_2048cnn_1xhighway_weights.hdf5",
    ]


def test_a_download_of_another_size_is_refused(files, served, cache, monkeypatch):
    name = NAMED_BILMS["small"][1]
    size = len(content(files.weights))
    sizes = {name.rpartition("/")[2]: range(size + 1, size + 9)}
    monkeypatch.setattr(fetching, "RELEASED_BYTES", sizes)
    message = f"{files.weights}, which came from {name}, has {size} bytes, expected {size + 1} or"
    with pytest.raises(FileNotFoundError, match=message):
        find_weights("small", None)
    assert len(served) == 2  # both addresses
    cache(name, b"<html>Sign in to this network</html>")
    with pytest.raises(FileNotFoundError, match=message):
        find_weights("small", None)
    kept = cache(name, content(files.weights) + b"12")
    assert find_weights("small", None) == kept
    # Of files that are not the released ones nothing is known.
    find_weights(*URLS)


# --- another place of the released files -------------------------------------------------------


SMALL = "2x1024_128_2048cnn_1xhighway/elmo_2x1024_128_2048cnn_1xhighway_"


@pytest.fixture
def mirror(monkeypatch):
    monkeypatch.setattr(fetching, "RELEASED_BYTES", {})
    return lambda place: monkeypatch.setenv("ELMO_PLUGIN_WEIGHTS", str(place))


@pytest.mark.parametrize("place", ["hf://owner/name", "https://example.org/elmo/", "s3://bucket"])
def test_names_are_read_from_the_mirror_alone(files, served, mirror, place, capsys):
    mirror(place)
    assert load_bilm("small").options == OPTIONS
    old = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/"
    assert find_weights(f"{old}{SMALL}options.json", None) == Path(files.weights)
    start = place.removesuffix("/") + "/" + SMALL
    assert served == [f"{start}options.json", *[f"{start}weights.hdf5"] * 2]
    find_options(*URLS)
    assert served[3:] == [URLS[0]]  # only what was released is elsewhere
    found = hashlib.sha256(content(files.weights)).hexdigest()
    said = capsys.readouterr().err
    assert f"weight_file: SHA-256 {found}, with none beside it to compare\n" in said


def test_mirror_that_lacks_a_file_is_named(served, mirror, offline):
    mirror("https://example.org/elmo")
    with pytest.raises(
        FileNotFoundError, match=rf"example\.org/elmo/{SMALL}options.* cannot"
    ) as it:
        load_bilm("small")
    assert "amazonaws" not in str(it.value)


@pytest.mark.parametrize("known", ["", "{} *elmo.hdf5\n", "{}", "0" * 64 + "  elmo.hdf5\n"])
def test_sum_beside_a_download_is_compared(files, mirror, cache, monkeypatch, capsys, known):
    mirror("https://example.org/elmo")
    found = hashlib.sha256(content(files.weights)).hexdigest()
    asked = []

    def fetch(url, *_, **__):
        asked.append(url)
        if url.endswith(".sha256"):
            return cache(url, known.format(found.upper()).encode())
        return cache(url, content(files.weights))

    monkeypatch.setattr(cached_path, "cached_path", fetch)
    monkeypatch.setattr(fetching, "_check_reachable", lambda url: None)
    address = f"https://example.org/elmo/{SMALL}weights.hdf5"
    for _ in range(2):
        if known.startswith("0"):
            message = f"{address} has the SHA-256 {found}, expected 0{{64}}, as {address}.sha256"
            with pytest.raises(FileNotFoundError, match=message):
                find_weights("small", None)
        else:
            assert content(find_weights("small", None)) == content(files.weights)
    said = capsys.readouterr().err
    assert (f"SHA-256 {found}, as in {address}.sha256\n" in said) == known.startswith("{")
    # A file with another sum does not stay in the cache; a right one is not asked for again.
    assert asked == [address, f"{address}.sha256"] * (1 + known.startswith("0"))


@pytest.mark.parametrize("known", [None, "right", "wrong"])
def test_mirror_in_a_folder_needs_no_package(files, mirror, tmp_path, monkeypatch, capsys, known):
    monkeypatch.setitem(sys.modules, "cached_path", None)
    mirror(tmp_path / "copy")
    for kind, source in (("options.json", files.options), ("weights.hdf5", files.weights)):
        path = tmp_path / "copy" / (SMALL + kind)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(source))
    found = hashlib.sha256(content(files.weights)).hexdigest()
    if known:
        path.with_name(f"{path.name}.sha256").write_text(found if known == "right" else "0")
    if known == "wrong":
        with pytest.raises(FileNotFoundError, match=f"weights.hdf5 has the SHA-256 {found}, exp"):
            load_bilm("small")
        return
    assert load_bilm("small").options == OPTIONS
    assert f"weight_file: SHA-256 {found}" in capsys.readouterr().err
    path.unlink()
    with pytest.raises(FileNotFoundError, match=f"there is no file {path}, where ELMO_PLUGIN_WEI"):
        load_bilm("small")


def test_the_sizes_of_the_released_files():
    """Four bytes a parameter, and some for names."""
    from elmo_plugin.bilm.files.options import num_parameters
    from elmo_plugin.bilm.model.options import ElmoOptions

    filters = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
    sizes = {
        "small": (128, 1024, 1),
        "medium": (256, 2048, 1),
        "original": (512, 4096, 2),
        "5.5B": (512, 4096, 2),
    }
    for name, (projection_dim, cell_size, num_highways) in sizes.items():
        options = ElmoOptions(projection_dim, cell_size, 2, 16, filters, num_highways)
        stored = num_parameters(options) - 16  # the padding token's row is ours alone
        found = fetching.RELEASED_BYTES[NAMED_BILMS[name][1].rpartition("/")[2]]
        assert 0 <= found.start - 4 * stored < 1 << 16
        assert found.stop - 4 * stored <= 1 << 16


def test_the_network_is_away(files, monkeypatch):
    def refuse(address, timeout):
        raise OSError("Network is unreachable")

    monkeypatch.setattr(fetching.socket, "create_connection", refuse)
    monkeypatch.setattr(fetching.urllib.request, "getproxies", dict)
    with pytest.raises(
        FileNotFoundError, match=r"small.*example\.org cannot be reached: Network is unreachable"
    ):
        find_weights("small/options.json", "https://example.org/small.hdf5")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("embedded", 1), "weight_file is 1, expected a path, a URL, or one of the names embedded"),
        ((1, None), "options_file is 1, expected a path, a URL, or one of the names embedded"),
        (("embedded", {}), "weight_file is {}, expected a path"),
    ],
)
def test_arguments_of_another_type_are_refused(arguments, message):
    for find in (find_options, find_weights):
        with pytest.raises(ValueError, match=message):
            find(*arguments)
