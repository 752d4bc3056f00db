"""What the data loader adds to the streams; `tests/training` has it in whole runs."""

import json

import _jsonnet
import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin.bilm.training.vocabulary import SPECIAL_WORDS, WordVocabulary
from elmo_plugin.data.bilm_vocabulary import BilmVocabulary
from elmo_plugin.data.readers.bilm_text import BilmTextReader
from elmo_plugin.data.token_streams import TokenStreamsLoader


@pytest.fixture
def loader(tmp_path):
    """Of four files of ten sentences."""
    for name in "abcd":
        (tmp_path / f"{name}.txt").write_text(f"{name} {name}\n" * 10)

    def build(**options):
        options = {"batch_size": 8, "num_steps": 3, **options}
        loader = TokenStreamsLoader(BilmTextReader(), str(tmp_path / "*.txt"), **options)
        loader.index_with(BilmVocabulary.from_words(WordVocabulary([*SPECIAL_WORDS, *"abcd"])))
        return loader

    return build


@pytest.mark.parametrize("num_workers", [0, 2])
def test_files_at_once_reach_both_directions(loader, num_workers):
    for files_at_once in (1, 4):
        batch = next(iter(loader(files_at_once=files_at_once, num_workers=num_workers)))["batch"]
        for one in batch:
            files = {path for path, _ in one.sources}
            assert len(files) == 1 if files_at_once == 1 else len(files) > 1


@pytest.mark.parametrize("name", ["batch_size", "num_steps", "files_at_once"])
def test_a_number_that_is_not_positive_is_refused(loader, name):
    with pytest.raises(ConfigurationError, match=f"{name} is 0, expected at least 1"):
        loader(**{name: 0})


def test_the_recipe_for_novels_shuffles_all_of_them_together(repository):
    file = repository / "training_config" / "table1" / "bilm_cpu.jsonnet"
    paths = dict.fromkeys(("TRAIN_PATH", "HELDOUT_PATH", "VOCAB_PATH"), "text")
    variables = {f"BIDIRECTIONAL_LM_{name}": value for name, value in paths.items()}
    config = json.loads(_jsonnet.evaluate_file(str(file), ext_vars=variables))
    assert config["data_loader"]["files_at_once"] >= 90
    assert "files_at_once" not in config["validation_data_loader"]
