"""
A checkpoint of a tiny biLM as bilm-tf has it, written by TensorFlow. The one that the quick tests
read is made by

    python -m tests.bilm.files.bilm_tf_run.write_checkpoint tests/bilm/files/bilm_tf_run/checkpoint

in the environment of `make libraries`; `values.npz` there is what TensorFlow itself says.
"""

import json
import sys
from pathlib import Path

import numpy

WORDS = ["</S>", "<S>", "<UNK>", "the", "cat", "sat", "on", "mat", "naïve", "."]
FILTERS = [[1, 3], [2, 4]]
CELL, PROJECTION, CHARACTERS = 5, 3, 4


def training_options(num_layers=2):
    """bilm-tf's `options.json`, shortened."""
    return {
        "bidirectional": True,
        "char_cnn": {
            "activation": "relu",
            "embedding": {"dim": CHARACTERS},
            "filters": FILTERS,
            "max_characters_per_token": 50,
            "n_characters": 261,
            "n_highway": 1,
        },
        "dropout": 0.1,
        "lstm": {
            "cell_clip": 3,
            "dim": CELL,
            "n_layers": num_layers,
            "proj_clip": 3,
            "projection_dim": PROJECTION,
            "use_skip_connections": True,
        },
        "n_tokens_vocab": len(WORDS),
        "unroll_steps": 20,
    }


def shapes(num_layers=2):
    """bilm-tf's variables."""
    filters = sum(number for _, number in FILTERS)
    found = {"lm/char_embed": (261, CHARACTERS)}
    for index, (width, number) in enumerate(FILTERS):
        found[f"lm/CNN/W_cnn_{index}"] = (1, width, CHARACTERS, number)
        found[f"lm/CNN/b_cnn_{index}"] = (number,)
    found |= {"lm/CNN_proj/W_proj": (filters, PROJECTION), "lm/CNN_proj/b_proj": (PROJECTION,)}
    for name in ("carry", "transform"):
        found[f"lm/CNN_high_0/W_{name}"] = (filters, filters)
        found[f"lm/CNN_high_0/b_{name}"] = (filters,)
    for direction in range(2):
        for layer in range(num_layers):
            cell = f"multi_rnn_cell/cell_{layer}/" if num_layers > 1 else ""
            prefix = f"lm/RNN_{direction}/rnn/{cell}lstm_cell"
            found[f"{prefix}/kernel"] = (2 * PROJECTION, 4 * CELL)
            found[f"{prefix}/bias"] = (4 * CELL,)
            found[f"{prefix}/projection/kernel"] = (CELL, PROJECTION)
    found |= {"lm/softmax/W": (len(WORDS), PROJECTION), "lm/softmax/b": (len(WORDS),)}
    return found


def random_values(seed, num_layers=2):
    """A number for every element of every variable."""
    rng = numpy.random.default_rng(seed)
    return {
        name: rng.normal(0.0, 0.3, shape).astype("float32")
        for name, shape in shapes(num_layers).items()
    }


def write(directory, num_layers=2, seed=0, num_steps=3):
    """
    `num_steps` steps of bilm-tf's optimizer with random gradients, all but the last of them before
    the checkpoint. Returns what TensorFlow held there, and the variables and the gradient of the
    step after it.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with tf.Graph().as_default(), v1.Session() as session:
        step = v1.get_variable("global_step", [], initializer=v1.zeros_initializer())
        v1.get_variable("train_perplexity", [], initializer=v1.zeros_initializer())
        variables, fed = {}, {}
        for name, value in random_values(seed, num_layers).items():
            variables[name] = v1.get_variable(name, initializer=tf.constant(value))
            fed[name] = v1.placeholder(tf.float32, value.shape)
        optimizer = v1.train.AdagradOptimizer(0.2, initial_accumulator_value=1.0)
        train = optimizer.apply_gradients([(fed[n], variables[n]) for n in variables], step)
        saver = v1.train.Saver(v1.global_variables(), max_to_keep=2)
        session.run(v1.global_variables_initializer())

        def run(number):
            gradients = random_values(1000 + number, num_layers)
            session.run(train, {fed[name]: gradients[name] for name in fed})
            return gradients

        for number in range(num_steps - 1):
            run(number)
        saver.save(session, str(directory / "model.ckpt"), global_step=step)
        held = {one.op.name: session.run(one) for one in v1.global_variables()}
        gradients = run(num_steps - 1)
        after = {name: session.run(one) for name, one in variables.items()}
    (directory / "options.json").write_text(json.dumps(training_options(num_layers)))
    (directory / "vocabulary.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return held, gradients, after


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    held, gradients, after = write(folder)
    for graph in folder.glob("*.meta"):
        graph.unlink()
    parts = {f"gradient/{n}": v for n, v in gradients.items()}
    parts |= {f"after/{n}": v for n, v in after.items()}
    numpy.savez_compressed(folder / "values.npz", **held, **parts)
