"""The commands that look at a biLM and at what models learned of it."""

import io
import pickle
import sys
import tarfile
import xml.etree.ElementTree
from pathlib import Path

import pytest
import torch

from elmo_plugin.__main__ import main
from elmo_plugin.bilm.use.neighbours import in_context
from elmo_plugin.pages.learned_mixes import learned_mixes
from tests.tiny_bilm import write

LAYERS = ["token layer", "LSTM layer 1", "LSTM layer 2"]
PREFIX = "text_field_embedder.token_embedder_elmo._elmo.scalar_mix_0"


@pytest.fixture
def bilm(tmp_path):
    (tmp_path / "bilm").mkdir()
    files = write(tmp_path / "bilm")
    return ["--options-file", files.options, "--weight-file", files.weights]


def test_token_vectors(tmp_path, bilm, capsys, error_line):
    (tmp_path / "tokens.txt").write_text("@@UNKNOWN@@\nthe\ncat\n")
    output = tmp_path / "vectors.txt"
    arguments = ["token-vectors", str(tmp_path / "tokens.txt"), str(output), *bilm]
    options = ["--header", "--sentence-boundaries", "--output-vocabulary"]
    main([*arguments, *options, str(tmp_path / "new.txt")])
    assert "5 vectors of 6 numbers in" in capsys.readouterr().out
    lines = output.read_text().splitlines()
    assert lines[0] == "5 6"
    tokens = ["@@UNKNOWN@@", "<S>", "</S>", "the", "cat"]
    assert [line.split()[0] for line in lines[1:]] == tokens
    assert (tmp_path / "new.txt").read_text().split() == tokens
    main([*arguments, "--force"])
    assert len(output.read_text().splitlines()) == 3
    same = [*arguments, "--force", "--output-vocabulary", str(output)]
    assert "vectors.txt, expected another file" in error_line(*same)
    assert len(output.read_text().splitlines()) == 3


def test_neighbours_table(tmp_path, bilm, capsys, error_line):
    (tmp_path / "text").write_text("the cat sat\nA cat is a cat .\n\ndogs " + "bark " * 60 + "\n")
    arguments = ["neighbours", str(tmp_path / "text"), "my cat sat", "cat", *bilm]
    main([*arguments, "--count", "3", "--width", "60"])
    table = capsys.readouterr().out.splitlines()
    assert table[0] == "  cosine    line  lines  in its sentence"
    assert table[1] == "  source                 my [cat] sat"
    assert [line for line in table if "layer" in line] == LAYERS
    assert table[3].startswith("   1.000       1      2  the [cat] sat")
    assert max(map(len, table)) <= 60
    main([*arguments, "--same-word"])
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 2 + 1 + 1 + 2 * (1 + 2)
    assert all("cat]" in line for line in table if "[" in line)
    error = error_line(*arguments, "--occurrence", "2")
    assert "has the word 'cat' 1 times, expected at least 2; the words are those between" in error
    assert "--occurrence is 0, expected 1 or more" in error_line(*arguments, "--occurrence", "0")
    assert "--count is 0, expected 1 or more" in error_line(*arguments, "--count", "0")
    (tmp_path / "text").write_bytes(b"\xff\n")
    assert "text, line 1: the byte 0xff is not UTF-8" in error_line(*arguments)
    main([*arguments, "--replace-bad-utf8"])
    assert "[\ufffd]" in capsys.readouterr().out


def test_neighbours_page_and_the_other_spelling(tmp_path, bilm, capsys, error_line):
    (tmp_path / "text").write_text("the cat <b> sat\nthe cat <b> sat\n")
    page = tmp_path / "page.html"
    main(["neighbors", str(tmp_path / "text"), "my cat", "cat", "--page", str(page), *bilm])
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "[cat]" in line]
    assert [row[1:3] for row in rows[1:] if row[-1] == "sat"] == [["1", "2"]] * 3
    text = page.read_text(encoding="utf-8")
    xml.etree.ElementTree.fromstring(text[text.index("<body>") : text.index("</html>")])
    assert text.count('the <mark class="c0">cat</mark> &lt;b&gt; sat') == 3
    assert text.count("<h2>") == 3
    again = ["neighbours", tmp_path / "text", "my cat", "cat", "--page", page, *bilm]
    assert "page.html exists, expected a new file; --force replaces it" in error_line(*again)


def test_a_word_in_context_fits_the_width():
    tokens = [f"w{number}" for number in range(50)]
    for position in (0, 3, 25, 49):
        shown = in_context(tokens, position, 40)
        assert f"[w{position}]" in shown
        assert 36 <= len(shown) <= 40
    assert in_context(["a", "b"], 1, 40) == "a [b]"


def archive(path, parameters):
    buffer = io.BytesIO()
    torch.save(parameters, buffer)
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w:gz") as file:
        member = tarfile.TarInfo("weights.th")
        member.size = buffer.tell()
        buffer.seek(0)
        file.addfile(member, buffer)
    return str(path)


def mix(name, scalars, gamma):
    return {
        f"{name}.gamma": torch.tensor([gamma]),
        **{f"{name}.scalar_parameters.{i}": torch.tensor([s]) for i, s in enumerate(scalars)},
    }


@pytest.mark.parametrize("plot", ["weights.png", "weights.svg"])
def test_layer_weights_are_told_and_drawn(tmp_path, capsys, error_line, plot):
    ner = archive(tmp_path / "ner" / "model.tar.gz", mix(PREFIX, [0.0, 0.0, 0.6931472], 1.5))
    two = {**mix("_elmo.scalar_mix_0", [0.0] * 3, 1.0), **mix("_elmo.scalar_mix_1", [1.0] * 4, 2.0)}
    archive(tmp_path / "snli" / "model.tar.gz", {**two, "other.weight": torch.ones(2)})
    main(["layer-weights", ner, str(tmp_path / "snli"), "--plot", str(tmp_path / plot)])
    header, *table = capsys.readouterr().out.splitlines()
    assert header.split()[-1] == "gamma"
    assert "token layer LSTM layer 1 LSTM layer 2 LSTM layer 3 " in " ".join(header.split())
    table = [header, *(line.split() for line in table)]
    assert table[1] == ["ner:", "input", "0.250", "0.250", "0.500", "1.500"]
    assert table[2] == ["snli:", "elmo", "0", "0.333", "0.333", "0.333", "1.000"]
    assert table[3] == ["snli:", "elmo", "1", "0.250", "0.250", "0.250", "0.250", "2.000"]
    drawn = (tmp_path / plot).read_bytes()
    if plot.endswith(".svg"):
        assert xml.etree.ElementTree.fromstring(drawn).tag.endswith("svg")
    else:
        assert drawn.startswith(b"\x89PNG")
    assert "exists, expected a new" in error_line("layer-weights", ner, "--plot", tmp_path / plot)


@pytest.mark.parametrize(
    "folder", ["<ner>", '<td><meta http-equiv="refresh" content="0">', "$\\x{$ &amp;", "\udcff"]
)
def test_a_folders_name_is_no_markup(tmp_path, folder, capsys):
    ner = archive(tmp_path / folder / "model.tar.gz", mix(PREFIX, [0.0, 0.0, 0.6931472], 1.5))
    page = str(tmp_path / folder / "page.html")
    main(["layer-weights", ner, "--plot", page])
    main(["layer-weights", str(tmp_path / folder), "--plot", page, "--force"])
    text = Path(page).read_text(encoding="utf-8")
    body = xml.etree.ElementTree.fromstring(text[text.index("<body>") : text.index("</html>")])
    header, row = body.iter("tr")
    assert [cell.text for cell in header] == [None, *LAYERS, "γ"]
    name = folder.replace("\udcff", "\\xff")
    assert [cell.text for cell in row] == [f"{name}: input", "0.250", "0.250", "0.500", "1.500"]
    main(["layer-weights", ner, "--plot", str(tmp_path / "weights.svg")])


def test_a_plot_of_a_single_mix_has_its_weights_and_whole_title(tmp_path):
    from matplotlib.figure import Figure

    drawn = []
    stock = Figure.savefig

    def savefig(figure, *arguments, **named):
        stock(figure, *arguments, **named)
        (axes, _) = figure.axes
        drawn.append((axes.title.get_window_extent(), figure.bbox))
        assert axes.images[0].get_array().tolist() == [[pytest.approx(1 / 3)]] * 3
        assert [label.get_text() for label in axes.get_yticklabels()] == LAYERS

    ner = archive(tmp_path / "ner" / "model.tar.gz", mix(PREFIX, [0.0] * 3, 1.0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", savefig)
        main(["layer-weights", ner, "--plot", str(tmp_path / "one.png")])
    ((title, figure),) = drawn
    assert figure.x0 <= title.x0 < title.x1 <= figure.x1


class Harmful:
    def __reduce__(self):
        return (sys.exit, ("executed",))


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_nothing_in_an_archive_is_executed(tmp_path, error_line):
    path = tmp_path / "a" / "best.th"
    path.parent.mkdir()
    path.write_bytes(pickle.dumps(Harmful()))
    assert "holds no weights that can be read safely" in error_line("layer-weights", path)
    path.write_bytes(b"")
    assert "best.th holds no weights that can be read safely (EOFError), expected a model" in (
        error_line("layer-weights", path)
    )
    torch.save({"x": Harmful()}, path)
    assert "holds no weights that can be read safely" in error_line("layer-weights", path.parent)


def test_what_holds_no_mix_is_an_error(tmp_path, error_line):
    path = archive(tmp_path / "m.tar.gz", {"w": torch.ones(1)})
    said = "holds no scalar_parameters among its 1 tensors, expected a model with ELMo"
    assert said in error_line("layer-weights", path)
    no_gamma = archive(tmp_path / "g.tar.gz", {"a.scalar_parameters.0": torch.ones(1)})
    assert said in error_line("layer-weights", no_gamma)
    for weight, gamma, name in ((0, (1,), "scalar_parameters.0"), (1, (), "gamma")):
        parameters = {
            "a.scalar_parameters.0": torch.ones([1] * weight),
            "a.gamma": torch.ones(gamma),
        }
        odd = archive(tmp_path / "odd.tar.gz", parameters)
        error = error_line("layer-weights", odd)
        assert f"odd.tar.gz: a.{name} has the shape (), expected (1,)" in error
    whole = (tmp_path / "m.tar.gz").read_bytes()
    (tmp_path / "torn.tar.gz").write_bytes(whole[:60] + b"\xff" * 60 + whole[120:])
    assert "torn.tar.gz is damaged: " in error_line("layer-weights", tmp_path / "torn.tar.gz")
    (tmp_path / "bad.gz").write_bytes(b"no archive")
    assert "bad.gz is damaged: not a gzip" in error_line("layer-weights", tmp_path / "bad.gz")
    with tarfile.open(tmp_path / "empty.gz", "w:gz"):
        pass
    assert "has no weights.th in it" in error_line("layer-weights", tmp_path / "empty.gz")


def test_mixes_of_elmo_itself_are_found(tmp_path):
    from elmo_plugin.bilm.use.elmo import Elmo

    files = write(tmp_path)
    torch.save(Elmo(*files, num_output_representations=2).state_dict(), tmp_path / "weights.th")
    found = learned_mixes(str(tmp_path / "weights.th"))
    assert [(mix.weights, mix.gamma) for mix in found] == [([pytest.approx(1 / 3)] * 3, 1.0)] * 2
