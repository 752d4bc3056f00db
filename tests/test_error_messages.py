"""
The most likely mistakes in Python and configs. Each message says what was wrong, the value found,
what was expected, and what to do next.
"""

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.modules.text_field_embedders import BasicTextFieldEmbedder

from elmo_plugin import Elmo, ElmoEmbedder, ElmoTransformer, batch_to_ids, load_bilm
from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.data.readers.conll2003 import Conll2003DatasetReader
from elmo_plugin.modules.elmo import Elmo as ConfiguredElmo
from elmo_plugin.modules.elmo_placement import ElmoPlacement
from elmo_plugin.modules.token_embedder import ElmoTokenEmbedder
from tests.cases import assert_brief
from tests.tiny_bilm import OPTIONS, random_bilm, write


class Case:
    """A folder with a tiny biLM, in which to make mistakes."""

    def __init__(self, folder):
        self.folder = folder
        self.files = self.options, self.weights = write(folder)

    def __truediv__(self, name):
        return str(self.folder / name)

    def write(self, name, content):
        """Write a file and return its path."""
        path = self.folder / name
        path.write_text(content)
        return str(path)


def placement(elmo=True, **flags):
    return lambda case: ElmoPlacement(
        Elmo(*case.files) if elmo else None, BasicTextFieldEmbedder({}), **flags
    )


NAMES = "embedded, small, medium, original, 5.5B"
# What is done, and what its message says: what was wrong with its value, what was expected, and
# what to do (where that is more than to give what was expected).
MISTAKES = {
    # Which biLM.
    "name mistyped": (
        lambda case: ElmoEmbedder("orginal"),
        ["options_file: there is no file orginal", NAMES, "give options_file the path"],
    ),
    "both names mistyped": (
        lambda case: ElmoEmbedder("orginal", "orginal"),
        ["options_file: there is no file orginal", NAMES, "give options_file the path"],
    ),
    "no such options file": (
        lambda case: Elmo(case / "none.json", case.weights),
        ["options_file: there is no file", "none.json", "give options_file the path of a local"],
    ),
    "no such weight file": (
        lambda case: Elmo(case.options, case / "none.hdf5"),
        ["weight_file: there is no file", "none.hdf5", "give weight_file the path of a local"],
    ),
    "weights alone": (
        lambda case: Elmo(weight_file=case.weights),
        ["weight_file", "weights.hdf5' was given without options_file", "expected both", NAMES],
    ),
    "options alone": (
        lambda case: Elmo(case.options),
        ["options_file", "options.json' was given without weight_file", "expected both", NAMES],
    ),
    "number in place of weights": (
        lambda case: Elmo("embedded", 1),
        ["weight_file is 1", "expected a path, a URL or a name", "num_output_representations"],
    ),
    "no output representation": (
        lambda case: Elmo(*case.files, num_output_representations=0),
        ["num_output_representations is 0", "expected 1 or more"],
    ),
    "negative output representations in a config": (
        lambda case: ConfiguredElmo.from_params(
            Params({"options_file": case.options, "num_output_representations": -1})
        ),
        ["num_output_representations is -1", "expected 1 or more"],
    ),
    "weights of other sizes": (
        lambda case: Elmo(options_dict(random_bilm(OPTIONS, cell_size=8).options), case.weights),
        ["weights.hdf5: ", "has shape (12, 40)", "(12, 32)", "expected the weight file that bel"],
    ),
    "weights are no HDF5": (
        lambda case: Elmo(case.options, case.write("w.hdf5", "<html>")),
        ["w.hdf5 is not a whole HDF5 file", "expected a weight file"],
    ),
    "options are no JSON": (
        lambda case: Elmo(case.write("o.json", "<html>"), case.weights),
        ["o.json is not a JSON file", "expected: options file"],
    ),
    "options lack a key": (
        lambda case: Elmo({"lstm": {}}),
        ["the key char_cnn.filters is missing", "expected options with it"],
    ),
    "options twice": (
        lambda case: Elmo.from_params(Params({"options": {"lstm": 1}, "options_file": "small"})),
        ["options and options_file 'small' are both given", "expected one of them"],
    ),
    "weights twice": (
        lambda case: Elmo(pretrained_file="a", weight_file="b"),
        ["pretrained_file 'a' and weight_file 'b' are both given", "expected one of them"],
    ),
    "files and a module": (
        lambda case: Elmo(*case.files, module=load_bilm(*case.files)),
        ["were given beside module", "expected either files or a module"],
    ),
    "fewer word ids than tokens": (
        lambda case: Elmo(*case.files, vocab_to_cache=["", "a"])(
            batch_to_ids([["a", "b"]]), torch.tensor([[1]])
        ),
        ["word ids have shape (1, 1)", "expected one for each token: (1, 2)"],
    ),
    "path in place of lines": (
        lambda case: ElmoEmbedder(*case.files).embed_file("text.txt", case / "layers.hdf5"),
        ["lines is 'text.txt'", "expected an open file or a list of sentences"],
    ),
    "negative projection": (
        lambda case: ElmoTokenEmbedder(*case.files, projection_dim=-3),
        ["projection_dim is -3", "expected 0 or more"],
    ),
    # Settings.
    "state mistyped": (
        lambda case: ElmoEmbedder(*case.files, state="warm"),
        ["state is 'warm'", "expected one of ('carry', 'reset', 'primed')"],
    ),
    "dtype unknown": (
        lambda case: Elmo(*case.files, dtype="float8"),
        ["dtype is 'float8'", "expected None or one of", "bfloat16"],
    ),
    "dtype in training": (
        lambda case: Elmo(*case.files, dtype="int8", requires_grad=True),
        ["dtype 'int8' is given with requires_grad", "expected a biLM that does not train"],
    ),
    "cache with carry": (
        lambda case: Elmo(*case.files, cache="memory"),
        ["cache 'memory'", "state 'carry'", "expected a frozen biLM", '"reset" or "primed"'],
    ),
    "batch size": (
        lambda case: ElmoEmbedder(*case.files).embed_sentences([["a"]], batch_size=0),
        ["batch_size is 0", "expected 1 or more"],
    ),
    "pooling": (
        lambda case: ElmoEmbedder(*case.files).sentence_vectors([["a"]], "sum"),
        ["pooling is 'sum'", "expected one of ['mean', 'max']"],
    ),
    # Tokens and ids.
    "tokens for ids": (
        lambda case: Elmo(*case.files)([["a"]]),
        ["[['a']] (list)", "expected a tensor of character ids", "50)", "batch_to_ids(sentences)"],
    ),
    "tokens for ids of a cached biLM": (
        lambda case: Elmo(*case.files, state="reset", cache="memory")("It rained"),
        ["found 'It rained'", "expected a tensor of character ids", "batch_to_ids(sentences)"],
    ),
    "array for ids": (
        lambda case: load_bilm(*case.files)(batch_to_ids([["a"]]).numpy()),
        ["(ndarray)", "expected a tensor of character ids"],
    ),
    "list for word ids": (
        lambda case: Elmo(*case.files, vocab_to_cache=["", "a"])(batch_to_ids([["a"]]), [[1]]),
        ["[[1]] (list)", "expected a tensor of word ids"],
    ),
    "ids of a float type": (
        lambda case: load_bilm(*case.files)(torch.ones(1, 1, 50)),
        ["dtype torch.float32", "expected a torch.int64 tensor"],
    ),
    "transformer: one text": (
        lambda case: ElmoTransformer(*("mean", *case.files)).fit_transform("It rained"),
        ["the string 'It rained'", "expected [text]"],
    ),
    # AllenNLP's configs.
    "flag without elmo": (
        placement(elmo=False, use_input_elmo=True),
        ["use_input_elmo: true without elmo", "expected the model's elmo"],
    ),
    "elmo without flag": (
        placement(use_input_elmo=False),
        ["found elmo and use_input_elmo: false", "expected at least one of them true"],
    ),
    "elmo for two places": (
        placement(use_input_elmo=True, use_output_elmo=True),
        ["num_output_representations: 1", "expected as many", "2"],
    ),
    "NER file with other columns": (
        lambda case: list(Conll2003DatasetReader().read(case.write("ner.txt", "Anna B-PER\n\n"))),
        ["ner.txt:1: 2 columns", "expected 4", "the reader's argument `columns`"],
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_explained(name, tmp_path):
    call, parts = MISTAKES[name]
    with pytest.raises((ValueError, OSError, ConfigurationError)) as raised:
        call(Case(tmp_path))
    message = str(raised.value)
    print(message)
    assert [part for part in parts if part not in message] == []
    assert_brief(message)
