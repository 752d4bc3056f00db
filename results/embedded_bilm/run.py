"""
Trains the biLM that comes with the package: elmo_plugin/pretrained/.

    python results/embedded_bilm/run.py TRAIN_FOLDER HELDOUT_FOLDER OUT [UPDATES]

The folders hold text files of one tokenized sentence a line, as `python -m elmo_plugin sentences`
writes them. About an hour on one core.
"""

import sys
from pathlib import Path

import torch

from elmo_plugin.bilm.bilm import BiLm
from elmo_plugin.bilm.options import ElmoOptions
from elmo_plugin.bilm.training.language_model import LanguageModel
from elmo_plugin.bilm.training.loop import LoopSettings, pretrain
from elmo_plugin.bilm.training.softmax import WordSoftmax
from elmo_plugin.bilm.training.vocabulary import WordVocabulary, count_words

OPTIONS = ElmoOptions(
    projection_dim=128,
    cell_size=512,
    num_layers=2,
    char_embedding_dim=16,
    filters=((1, 32), (2, 32), (3, 64), (4, 128), (5, 128), (6, 128)),
    num_highways=1,
)


def main() -> None:
    """Trains and exports."""
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    train, heldout = (sorted(Path(folder).glob("*.txt")) for folder in sys.argv[1:3])
    num_updates = int(sys.argv[4]) if len(sys.argv) > 4 else 8000
    torch.manual_seed(13370)
    torch.set_num_threads(1)
    vocabulary = WordVocabulary.from_counts(count_words(train), min_count=5)
    softmax = WordSoftmax(len(vocabulary), OPTIONS.projection_dim, num_samples=2048)
    # Less than one epoch: nothing is seen twice, and dropout would only slow the learning.
    model = LanguageModel(BiLm(OPTIONS), softmax, dropout=0.0)
    settings = LoopSettings(num_updates=num_updates, learning_rate=2.5e-3, evaluate_every=1000)
    pretrain(model, vocabulary, train, heldout, Path(sys.argv[3]), settings)


if __name__ == "__main__":
    main()
