import torch

from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.options import ElmoOptions
from elmo_plugin.bilm.training import loop
from elmo_plugin.bilm.training.language_model import LanguageModel
from elmo_plugin.bilm.training.softmax import WordSoftmax
from elmo_plugin.bilm.training.vocabulary import SPECIAL_WORDS, WordVocabulary


def test_the_loop_shuffles_as_many_files_together_as_its_settings_say(tmp_path, monkeypatch):
    words = WordVocabulary([*SPECIAL_WORDS, *"abcd"])
    for name in "abcd":
        (tmp_path / f"{name}.txt").write_text(f"{name} {name}\n" * 10)
    paths = sorted(tmp_path.glob("*.txt"))
    seen = []

    def both_directions(files, vocabulary, *args, shuffle=True, **options):
        for pair in loop_streams(files, vocabulary, *args, shuffle=shuffle, **options):
            if shuffle:
                seen.append({path for one in pair for path, _ in one.sources})
            yield pair

    loop_streams = loop.both_directions
    monkeypatch.setattr(loop, "both_directions", both_directions)
    for files_at_once in (1, 4):
        torch.manual_seed(0)
        model = LanguageModel(BiLm(ElmoOptions(4, 4, 1, 2, ((1, 2),), 1)), WordSoftmax(7, 4))
        settings = loop.LoopSettings(1, batch_size=8, num_steps=3, files_at_once=files_at_once)
        directory = tmp_path / str(files_at_once)
        card = loop.pretrain(model, words, paths, paths, directory, settings)
        assert card["settings"]["files_at_once"] == files_at_once
    one, four = seen
    assert len(one) <= 2 < len(four)
