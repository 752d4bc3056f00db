"""
The smallest task for AllenNLP core's own `simple_tagger`: made-up words, tagged by what they end
in, with vectors in GloVe's format. No file of it is stored; tests write it where they need it.
"""

import json
import random

VECTOR_DIM = 5
CLASSES = {"er": "N", "ing": "V", "ly": "R"}


def write_task(folder, num_sentences=40):
    """`train.txt`, `dev.txt` (`word###TAG word###TAG`) and `vectors.txt` in a folder."""
    choose = random.Random(11)
    stems = ["walk", "talk", "bak", "sing", "slow", "quick", "paint", "read"]
    words = {stem + ending: tag for stem in stems for ending, tag in CLASSES.items()}
    for name in ("train.txt", "dev.txt"):
        lines = []
        for _ in range(num_sentences):
            sentence = choose.choices(sorted(words), k=choose.randint(1, 7))
            lines.append(" ".join(f"{word}###{words[word]}" for word in sentence))
        (folder / name).write_text("\n".join(lines) + "\n")
    vectors = [
        " ".join([word, *(f"{choose.gauss(0, 1):.4f}" for _ in range(VECTOR_DIM))])
        for word in sorted(words)
    ]
    (folder / "vectors.txt").write_text("\n".join(vectors) + "\n")


def tagger_config():
    """A stock AllenNLP 2 config without ELMo; its files lie in the current directory."""
    return {
        "dataset_reader": {
            "type": "sequence_tagging",
            "token_indexers": {"tokens": {"type": "single_id"}},
        },
        "train_data_path": "train.txt",
        "validation_data_path": "dev.txt",
        "model": {
            "type": "simple_tagger",
            "text_field_embedder": {
                "token_embedders": {
                    "tokens": {
                        "type": "embedding",
                        "embedding_dim": VECTOR_DIM,
                        "pretrained_file": "vectors.txt",
                    }
                }
            },
            "encoder": {"type": "lstm", "input_size": VECTOR_DIM, "hidden_size": 6},
        },
        "data_loader": {"batch_size": 8, "shuffle": True},
        "trainer": {"optimizer": {"type": "adam", "lr": 0.01}, "num_epochs": 1, "cuda_device": -1},
    }


def with_elmo(config, embedding_dim, **arguments):
    """The config with ELMo at its input."""
    config = json.loads(json.dumps(config))
    config["dataset_reader"]["token_indexers"]["elmo"] = {"type": "elmo_characters"}
    model = config["model"]
    model["text_field_embedder"]["token_embedders"]["elmo"] = {
        "type": "elmo_token_embedder",
        "dropout": 0.1,
        **arguments,
    }
    model["encoder"]["input_size"] += embedding_dim
    return config
