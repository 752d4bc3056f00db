from elmo_plugin.data.readers.coref import ConllCorefReader, merge_clusters, read_documents

# Line, speaker, coreference: two sentences.
TALK = """\
Anna Ann (0)
met Ann -
the Ann (1
old Ann -
baker Ann 1)

He Bob (1)
waved Bob -
"""


def write(path, *documents, key="bc/x/00/x_0001"):
    """Documents of lines `word speaker coreference`; before the last, cells of predicates."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    for part, document in enumerate(documents):
        lines.append(f"#begin document ({key}); part {part:03d}")
        for line in document.splitlines():
            word, speaker, *cells = line.split() or ("", "")
            columns = f"{key} {part} 0 {word} XX * - - - {speaker} * {' '.join(cells)}"
            lines.append(columns if line else "")
        lines += ["", "#end document"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def spans_of(instance):
    return [(span.span_start, span.span_end) for span in instance["spans"]]


def test_an_instance_by_hand(tmp_path):
    (one,) = ConllCorefReader(2).read(str(write(tmp_path / "a.gold_conll", TALK)))
    assert [t.text for t in one["text"]] == ["Anna", "met", "the", "old", "baker", "He", "waved"]
    # Within a sentence, of at most two words.
    assert spans_of(one) == [
        *[(0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (2, 3), (3, 3), (3, 4), (4, 4)],
        *[(5, 5), (5, 6), (6, 6)],
    ]
    assert one["metadata"].metadata == {
        "original_text": ["Anna", "met", "the", "old", "baker", "He", "waved"],
        "sentence_lengths": [5, 2],
        "speakers": ["Ann"] * 5 + ["Bob"] * 2,
        "genre": "bc",
        "document_key": "bc/x/00/x_0001",
        "clusters": [[(0, 0)], [(2, 4), (5, 5)]],
    }
    assert one["span_labels"].labels == [0, *[-1] * 8, 1, -1, -1]


def test_clusters_of_one_mention_can_be_left_out(tmp_path):
    path = write(tmp_path / "a.gold_conll", TALK)
    (one,) = ConllCorefReader(3, remove_singleton_clusters=True).read(str(path))
    assert one["metadata"]["clusters"] == [[(2, 4), (5, 5)]]
    assert sorted(set(one["span_labels"].labels)) == [-1, 0]


def test_the_first_sentences(tmp_path):
    path = write(tmp_path / "a.gold_conll", TALK)
    (one,) = ConllCorefReader(3, max_sentences=1).read(str(path))
    assert one["metadata"]["original_text"] == ["Anna", "met", "the", "old", "baker"]
    assert one["metadata"]["clusters"] == [[(0, 0)], [(2, 4)]]
    assert one["metadata"]["sentence_lengths"] == [5]
    assert one["metadata"]["speakers"] == ["Ann"] * 5


def test_nested_mentions_and_words_that_look_like_brackets(tmp_path):
    text = "Ben - (2|(0)\n's - -\n2) - (0\nten - 0)\nboats - 2)\n/. - -\n"
    (document,) = read_documents(write(tmp_path / "a.gold_conll", text))
    assert sorted(map(sorted, document.clusters)) == [[(0, 0), (2, 3)], [(0, 4)]]
    assert document.sentences == [["Ben", "'s", "2)", "ten", "boats", "/."]]
    (one,) = ConllCorefReader(6).read(str(tmp_path / "a.gold_conll"))
    assert one["metadata"]["original_text"][-1] == "."


def test_a_mention_inside_one_of_the_same_cluster(tmp_path):
    text = "Greg - (3\nwho - -\nsaw - -\nhimself - (3)\ntoday - 3)\n"
    (document,) = read_documents(write(tmp_path / "a.gold_conll", text))
    assert document.clusters == [[(3, 3), (0, 4)]]


def test_clusters_that_share_a_mention_are_joined():
    found = merge_clusters([[(0, 0), (5, 5)], [(7, 7), (8, 8)], [(9, 9), (5, 5)]])
    assert found == [[(0, 0), (5, 5), (9, 9)], [(7, 7), (8, 8)]]


def test_files_of_a_directory_and_several_documents_in_a_file(tmp_path):
    write(tmp_path / "b/x.v4_gold_conll", "two - -\n", "three - -\n", key="nw/x")
    write(tmp_path / "a/y.gold_conll", "one - -\n", key="story")
    write(tmp_path / "a/y.txt", "no - -\n")
    found = list(ConllCorefReader(2).read(str(tmp_path)))
    assert [one["metadata"]["original_text"] for one in found] == [["one"], ["two"], ["three"]]
    assert [one["metadata"]["genre"] for one in found] == ["", "nw", "nw"]


def test_tabs_and_a_file_without_document_lines(tmp_path):
    path = tmp_path / "a.gold_conll"
    cells = ["d", "0", "0", "a\u00a0b", "XX", "*", "-", "-", "-", "Al", "*", "(1)"]
    path.write_text("\t".join(cells) + "\r\n", encoding="utf-8")
    (document,) = read_documents(path)
    assert document == ("", [["a\u00a0b"]], [["Al"]], [[(0, 0)]])


def test_a_file_cut_short_is_read_with_a_warning(tmp_path, caplog):
    path = write(tmp_path / "a.gold_conll", TALK)
    path.write_text("\n".join(path.read_text().split("\n")[:-2]), encoding="utf-8")
    assert len(list(read_documents(path))) == 1
    assert "begins in line 1 has no '#end document'" in caplog.text
