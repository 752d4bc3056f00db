import itertools
import random
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from elmo_plugin.bilm.pretraining import loader as module
from elmo_plugin.bilm.pretraining.loader import (
    StreamLoader,
    StreamPosition,
    TokenStreams,
    TokenTypes,
)
from elmo_plugin.bilm.pretraining.vocabulary import SPECIAL_WORDS, WordVocabulary

VOCABULARY = WordVocabulary([*SPECIAL_WORDS, "a", "b", "c", "d", "e"])


def streams(paths, direction="forward", own_rows=None, batch_size=2, num_steps=3, **options):
    loader = StreamLoader(paths, batch_size, num_steps, **{"shuffle": False, **options})
    types = TokenTypes(VOCABULARY, 12, 2 * loader.files_at_once)
    return TokenStreams(loader, types, direction, batch_size, own_rows or range(batch_size))


def words(batch, read):
    """A batch's targets as words, row by row."""
    read.types.describe()
    targets = read.types.words[batch.targets.T]
    return [[VOCABULARY.words[index] for index in row] for row in targets.tolist()]


def inputs(batch, read):
    """A batch's inputs as words, row by row."""
    tokens = list(read.types.ids)
    return [[tokens[index] for index in row] for row in batch.tokens.T.tolist()]


def sources(batch, read):
    """File and line of each sentence in a batch."""
    return [(str(read.loader.paths[file]), line) for file, line in batch.sources.tolist()]


@pytest.fixture
def text(tmp_path):
    written = itertools.count()

    def write(*contents):
        folder = tmp_path / str(next(written))
        folder.mkdir()
        paths = []
        for number, content in enumerate(contents):
            paths.append(folder / f"{number}.txt")
            data = content if isinstance(content, bytes) else content.encode()
            paths[-1].write_bytes(data)
        return paths

    return write


def test_forward_streams_by_hand(text):
    read = streams(text("a b c\nd e\nb\na\nc c\n"))
    batches = list(read.batches())
    # The rows take the next sentence when they have done with theirs; a boundary that ends one is
    # predicted, never read; what is left at the end (row 0 would want more) is dropped.
    assert [inputs(batch, read) for batch in batches] == [
        [["<S>", "a", "b"], ["<S>", "d", "e"]],
        [["c", "<S>", "b"], ["<S>", "a", "<S>"]],
    ]
    assert [words(batch, read) for batch in batches] == [
        [["a", "b", "c"], ["d", "e", "</S>"]],
        [["</S>", "b", "</S>"], ["a", "</S>", "c"]],
    ]


def test_backward_streams_by_hand(text):
    read = streams(text("a b\nc d e\n"), "backward")
    (batch,) = read.batches()
    assert inputs(batch, read) == [["</S>", "b", "a"], ["</S>", "e", "d"]]
    assert words(batch, read) == [["b", "a", "<S>"], ["e", "d", "c"]]


def test_unknown_words_are_read_by_their_characters_and_predicted_as_unknown(text):
    read = streams(text("zebra a\n"), batch_size=1)
    (batch,) = read.batches()
    assert inputs(batch, read) == [["<S>", "zebra", "a"]]
    assert words(batch, read) == [["<UNK>", "a", "</S>"]]


@pytest.mark.parametrize("contents", [[""], ["\n\n", ""]])
@pytest.mark.parametrize("endless", [True, False])
def test_an_empty_corpus_is_an_error_that_names_it(text, contents, endless):
    with pytest.raises(ValueError, match=r"no sentence in .*0\.txt.*expected one a line"):
        next(streams(text(*contents)).batches(endless=endless))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_unreadable_bytes_are_an_error_with_file_and_line(text, num_workers):
    paths = text("a b c d\n" * 9, b"a b\nb \xff c\n")
    loader = StreamLoader(paths, 2, num_steps=3, shuffle=False, num_workers=num_workers)
    with pytest.raises(ValueError, match=r"^\S*1\.txt:2: not UTF-8"):
        list(loader.pairs(VOCABULARY))


LOAD = """
import multiprocessing, os, signal, sys
from elmo_plugin.bilm.pretraining.loader import StreamLoader
from elmo_plugin.bilm.pretraining.stop_request import WARNINGS
from elmo_plugin.bilm.pretraining.vocabulary import SPECIAL_WORDS, WordVocabulary

def load(**settings):
    words = WordVocabulary([*SPECIAL_WORDS, "a"])
    return StreamLoader([sys.argv[1]], 2, **settings).pairs(words, endless=True)
"""


def loads(text, program):
    """A finished process that has run a program after `LOAD`."""
    command = [sys.executable, "-c", LOAD + program, *text("a a a\n" * 40)]
    return subprocess.run(
        command, capture_output=True, text=True, start_new_session=True, timeout=100
    )


SIGNALLED = """
pairs = load(num_steps=3, num_workers=1)
for number in (signal.SIGTERM, *WARNINGS):
    signal.signal(number, lambda *_: None)
for _ in range(9):
    next(pairs)
    os.killpg(0, signal.SIGTERM)
    for child in multiprocessing.active_children():
        for number in WARNINGS:
            os.kill(child.pid, number)
print("read")
"""


def test_a_worker_outlives_a_signal_to_the_process_group(text):
    """As torchrun sends it; the run itself goes on until it has saved."""
    done = loads(text, SIGNALLED)
    assert (done.returncode, done.stdout) == (0, "read\n"), done.stderr[-2000:]


def test_workers_end_with_a_run_that_is_killed(text):
    """They have batches to send, larger than a pipe holds. Until they end, so does not the pipe."""
    program = "next(load(num_steps=20_000, num_workers=2)); os.kill(os.getpid(), signal.SIGKILL)"
    assert (done := loads(text, program)).returncode == -signal.SIGKILL, done.stderr[-2000:]


def test_batches_are_on_the_cpu_whatever_the_default_device_is(text):
    with torch.device("meta"):
        pair = next(StreamLoader(text("a b c\n" * 9), 2, 3).pairs(VOCABULARY))
    assert pair.tokens.is_cpu


def test_a_line_of_a_megabyte_is_one_sentence(text):
    line = "a b " * 250_000
    batches = streams(text(line), batch_size=1, num_steps=20_000).batches()
    assert sum(batch.targets.size for batch in batches) == 500_000
    read = streams(text("é" * 500_000), batch_size=1, num_steps=2)
    (batch,) = read.batches()
    assert words(batch, read) == [["<UNK>", "</S>"]]


def random_text(seed, num_sentences=60):
    rng = random.Random(seed)
    return "".join(
        " ".join(rng.choices("abcde", k=rng.randint(1, 9))) + "\n" for _ in range(num_sentences)
    )


def test_a_pass_reads_every_sentence_once_in_an_order_of_its_own(text):
    paths = text(random_text(1), random_text(2))
    read = []
    for direction, epoch in itertools.product(("forward", "backward"), (0, 1)):
        options = {"batch_size": 1, "num_steps": 1, "shuffle": True}
        one = streams(paths, direction, **options)
        batches = list(one.batches(StreamPosition(epoch)))
        read.append([source for batch in batches for source in sources(batch, one)])
    places = [list(dict.fromkeys(found)) for found in read]
    assert all(sorted(order) == sorted(places[0]) and len(order) == 120 for order in places)
    assert all(one != other for one, other in itertools.combinations(places, 2))
    again = streams(paths, "forward", batch_size=1, num_steps=1, shuffle=True)
    assert [one for batch in again.batches() for one in sources(batch, again)] == read[0]


def order_read(paths, direction="forward", epoch=0, **options):
    """File (its number) and line of each sentence of a pass, in the order that one stream reads."""
    options = {"batch_size": 1, "num_steps": 1, "shuffle": True, "seed": 5, **options}
    read = streams(paths, direction, **options)
    found = [sources(batch, read)[0] for batch in read.batches(StreamPosition(epoch))]
    return [(int(Path(path).stem), line) for path, line in dict.fromkeys(found)]


def order_by_hand(files, direction, epoch, files_at_once, seed=5):
    """`files`: number of lines of each."""

    def shuffled(items, occasion):
        random.Random(f"{seed} {direction} {occasion}").shuffle(items)
        return items

    files = shuffled(list(enumerate(files)), f"{epoch}")
    order = []
    for group in range(0, len(files), files_at_once):
        held = files[group : group + files_at_once]
        lines = [(file, line) for file, length in held for line in range(1, length + 1)]
        order += shuffled(lines, f"{epoch} {group // files_at_once}")
    return order


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("files_at_once", [1, 2, 3, 100])
def test_files_at_once_are_shuffled_together(text, direction, files_at_once):
    lengths = [20, 11, 0, 30, 7]
    paths = text(*(random_text(seed, length) for seed, length in enumerate(lengths)))
    for epoch in (0, 1):
        found = order_read(paths, direction, epoch, files_at_once=files_at_once)
        assert sorted(found) == [
            (f, n) for f, most in enumerate(lengths) for n in range(1, most + 1)
        ]
        assert found == order_by_hand(lengths, direction, epoch, files_at_once)
        assert found != order_by_hand(lengths, direction, epoch, files_at_once, seed=6)
        changes = sum(one[0] != other[0] for one, other in itertools.pairwise(found))
        # One file after the other, or among each other.
        assert changes == 3 if files_at_once == 1 else changes > 10


def test_without_shuffling_the_number_of_files_at_once_changes_nothing(text):
    paths = text(random_text(1), "", random_text(2))
    one, all_ = (list(streams(paths, files_at_once=number).batches()) for number in (1, 100))
    assert [batch.sources.tolist() for batch in one] == [batch.sources.tolist() for batch in all_]
    assert [batch.position for batch in one] == [batch.position for batch in all_]


def test_words_of_all_kinds_are_read(text):
    lines = ["é “b” ç\n", " \n", "𐍈 <S> </S>\r\n", "日本\n", "the last"]
    read = streams(text("".join(lines), "", "x\ny\n"), shuffle=True, batch_size=1, num_steps=1)
    found = {}
    for batch in read.batches():
        found.setdefault(sources(batch, read)[0], []).append(inputs(batch, read)[0][0])
    paths = read.loader.paths
    expected = {(str(paths[0]), n): line.split() for n, line in enumerate(lines, 1) if line.strip()}
    expected |= {(str(paths[2]), 1): ["x"], (str(paths[2]), 2): ["y"]}
    assert found == {place: ["<S>", *tokens] for place, tokens in expected.items()}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"paths": []}, "no text files to read, expected at least one"),
        ({"files_at_once": 0}, "files_at_once is 0, expected at least 1"),
        ({"num_steps": -1}, "num_steps is -1, expected at least 1"),
        ({"num_characters": 2}, "num_characters is 2, expected at least 3"),
        ({"num_workers": -1}, "num_workers is -1, expected at least 0"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(ValueError, match=message):
        StreamLoader(**{"paths": ["a.txt"], "batch_size": 1, **settings})


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("files_at_once", [1, 2, 100])
@pytest.mark.parametrize("shuffle", [True, False])
def test_streams_go_on_from_any_position_as_if_never_stopped(
    text, direction, shuffle, files_at_once, monkeypatch
):
    monkeypatch.setattr(module, "SENTENCES_AT_ONCE", 7)
    paths = text(random_text(1, 9), "", random_text(2, 5))
    options = {"shuffle": shuffle, "files_at_once": files_at_once}
    read = streams(paths, direction, **options)
    whole = list(itertools.islice(read.batches(endless=True), 40))
    assert whole[-1].position.epoch > 1
    for stop in range(39):
        position = asdict(whole[stop].position)
        again = streams(paths, direction, **options)
        resumed = again.batches(StreamPosition.from_dict(position, paths), endless=True)
        for expected, found in zip(whole[stop + 1 :], resumed):
            assert words(expected, read) == words(found, again)
            assert inputs(expected, read) == inputs(found, again)
            assert (expected.sources == found.sources).all()


def test_a_position_of_another_number_of_streams_is_refused(text):
    paths = text(random_text(1))
    position = next(streams(paths).batches()).position
    with pytest.raises(ValueError, match="has 2 streams, expected 3"):
        next(streams(paths, batch_size=3).batches(position))


def test_workers_share_the_batches_out(text):
    paths = text(random_text(1))
    read = streams(paths, shuffle=True)
    whole = list(read.batches())
    for worker in range(3):
        share = list(read.batches(worker=worker, num_workers=3))
        expected = whole[worker::3]
        assert [words(batch, read) for batch in share] == [words(batch, read) for batch in expected]
        assert [batch.position for batch in share] == [batch.position for batch in expected]


def test_processes_together_read_what_one_would(text):
    paths = text(random_text(1))
    all_rows = (None, range(2), range(2, 3), range(3, 6))
    readers = [streams(paths, batch_size=6, shuffle=True, own_rows=rows) for rows in all_rows]
    for expected, *found in zip(*(one.batches() for one in readers)):
        rows = [row for part, read in zip(found, readers[1:]) for row in words(part, read)]
        assert words(expected, readers[0]) == rows
        assert all(part.position == expected.position for part in found)


def test_a_position_of_version_0_4_is_read_in_a_folder_that_moved(text):
    """Of each row it has the tokens left, with the end, and the file by name."""
    paths = text("a b c\n", "d e\n")
    rows = [[["b", "c", "</S>"], "elsewhere/0.txt", 1], [["</S>"], str(paths[1]), 1]]
    stored = {"epoch": 2, "file": 1, "sentence": 3, "rows": rows}
    expected = StreamPosition(2, 1, 3, [(0, 1, 2), (1, 1, 0)])
    assert StreamPosition.from_dict(stored, paths) == expected


def test_both_directions_stop_together(text):
    paths = text(random_text(1))
    pairs = list(StreamLoader(paths, batch_size=2, num_steps=3).pairs(VOCABULARY))
    alone = [len(list(streams(paths, d, shuffle=True).batches())) for d in ("forward", "backward")]
    assert len(pairs) == min(alone)
