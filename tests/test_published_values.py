"""
The configs of table 1 hold the published values. SNLI and SST-5 have those that AllenNLP shipped:
allennlp-models 2.10.1, training_config/{pair_classification/esim{,_elmo},
classification/biattentive_...{,_elmo}}.jsonnet. SQuAD has document-qa's.
"""

import pytest

from tests.test_configs import in_folder

GLOVE = "https://allennlp.s3.amazonaws.com/datasets/glove/glove.840B.300d.txt.gz"


def paths(corpus):
    return {
        f"{split}_data_path": f"path/of/{corpus}_{split.upper()}_DATA_PATH"
        for split in ("train", "validation", "test")
    }


ESIM = {
    **paths("SNLI"),
    "dataset_reader.type": "snli",
    "model.dropout": 0.5,
    "model.encoder.hidden_size": 300,
    "model.encoder.bidirectional": True,
    "model.matrix_attention.type": "dot_product",
    "model.projection_feedforward.input_dim": 2400,
    "model.projection_feedforward.hidden_dims": 300,
    "model.projection_feedforward.activations": "relu",
    "model.inference_encoder.input_size": 300,
    "model.inference_encoder.hidden_size": 300,
    "model.output_feedforward.input_dim": 2400,
    "model.output_feedforward.hidden_dims": 300,
    "model.output_feedforward.dropout": 0.5,
    "model.output_logit.input_dim": 300,
    "model.output_logit.hidden_dims": 3,
    "model.output_logit.activations": "linear",
    "data_loader.batch_sampler.type": "bucket",
    "data_loader.batch_sampler.batch_size": 32,
    "trainer.optimizer": {"type": "adam", "lr": 0.0004},
    "trainer.validation_metric": "+accuracy",
    "trainer.num_epochs": 75,
    "trainer.grad_norm": 10.0,
    "trainer.patience": 5,
    "trainer.learning_rate_scheduler": {
        "type": "reduce_on_plateau",
        "factor": 0.5,
        "mode": "max",
        "patience": 0,
    },
    "trainer.checkpointer.keep_most_recent_by_count": 2,
}
BCN = {
    **paths("SST"),
    "dataset_reader.use_subtrees": True,
    "dataset_reader.granularity": "5-class",
    "dataset_reader.token_indexers.tokens": {"type": "single_id"},
    "validation_dataset_reader.use_subtrees": False,
    "model.text_field_embedder.token_embedders.tokens.pretrained_file": GLOVE,
    "model.text_field_embedder.token_embedders.tokens.trainable": False,
    "model.pre_encode_feedforward.hidden_dims": 300,
    "model.pre_encode_feedforward.dropout": 0.25,
    "model.encoder.input_size": 300,
    "model.encoder.hidden_size": 300,
    "model.integrator.input_size": 1800,
    "model.integrator.hidden_size": 300,
    "model.integrator_dropout": 0.1,
    "model.output_layer.input_dim": 2400,
    "model.output_layer.output_dims": [1200, 600, 5],
    "model.output_layer.pool_sizes": 4,
    "model.output_layer.dropout": [0.2, 0.3, 0.0],
    "data_loader.batch_sampler.batch_size": 100,
    "trainer.optimizer": {"type": "adam", "lr": 0.001},
    "trainer.num_epochs": 40,
    "trainer.patience": 5,
    "trainer.grad_norm": 5.0,
}
SQUAD = {
    "dataset_reader.token_indexers.tokens": {"type": "single_id"},
    "dataset_reader.token_indexers.token_characters.max_characters_per_token": 14,
    "model.text_field_embedder.token_embedders.tokens.pretrained_file": GLOVE,
    "model.text_field_embedder.token_embedders.tokens.trainable": False,
    "model.dropout": 0.2,
    "model.max_span_length": 17,
    "data_loader.batch_sampler.batch_size": 45,
    "data_loader.batch_sampler.drop_last": True,
    "trainer.optimizer": {"type": "adadelta", "lr": 1.0, "rho": 0.95, "eps": 1e-8},
    "trainer.moving_average.decay": 0.999,
    "trainer.validation_metric": "+f1",
    "trainer.grad_norm": None,
    "trainer.learning_rate_scheduler": None,
}
CONFIGS = {
    "esim": {
        **ESIM,
        "dataset_reader.token_indexers.tokens.lowercase_tokens": True,
        "model.text_field_embedder.token_embedders.tokens.pretrained_file": GLOVE,
        "model.text_field_embedder.token_embedders.tokens.trainable": True,
        "model.encoder.input_size": 300,
    },
    "esim_elmo": {
        **ESIM,
        "dataset_reader.token_indexers": {"elmo": {"type": "elmo_characters"}},
        "model.text_field_embedder.token_embedders.elmo.dropout": 0.0,
        "model.text_field_embedder.token_embedders.elmo.do_layer_norm": False,
        "model.encoder.input_size": 1024,
    },
    "biattentive_classification_network": {
        **BCN,
        "model.embedding_dropout": 0.25,
        "model.pre_encode_feedforward.input_dim": 300,
    },
    "biattentive_classification_network_elmo": {
        **BCN,
        "dataset_reader.token_indexers.elmo": {"type": "elmo_characters"},
        "validation_dataset_reader.token_indexers.elmo": {"type": "elmo_characters"},
        "model.embedding_dropout": 0.5,
        "model.pre_encode_feedforward.input_dim": 1324,
        "model.elmo.num_output_representations": 1,
        "model.elmo.dropout": 0.0,
        "model.elmo.do_layer_norm": False,
        "model.use_input_elmo": True,
    },
    # The paper's appendix: table 1's own setup.
    "esim_elmo_paper": {
        "model.elmo.num_output_representations": 2,
        "model.elmo.do_layer_norm": True,
        "model.encoder.input_size": 1324,
        "model.projection_feedforward.input_dim": 4 * (600 + 1024),
        "model.text_field_embedder.token_embedders.tokens.trainable": False,
        "model.attention_dropout": 0.5,
        "trainer.grad_norm": 5.0,
    },
    "biattentive_classification_network_elmo_paper": {
        "dataset_reader.min_phrase_length": 4,
        "validation_dataset_reader.min_phrase_length": 1,
        "model.elmo.num_output_representations": 2,
        "model.output_layer.input_dim": 4 * (600 + 1024),
        "model.output_layer.activations": ["relu", "relu", "linear"],
        "trainer.optimizer": {"type": "adam", "lr": 0.0001},
        "trainer.num_epochs": 40,
    },
    "squad": {
        **SQUAD,
        "model.phrase_layer.input_size": 400,
        "model.phrase_layer.hidden_size": 100,
        "model.span_end_encoder.input_size": 400,
        "trainer.num_epochs": 26,
        "vocabulary.min_count.token_characters": 50,
    },
    "squad_elmo": {
        **SQUAD,
        "model.phrase_layer.input_size": 1424,
        "model.phrase_layer.hidden_size": 90,
        "model.span_end_encoder.input_size": 360,
        "model.elmo.num_output_representations": 2,
        "model.elmo.dropout": 0.5,
        "model.elmo.do_layer_norm": False,
        "model.use_input_elmo": True,
        "model.use_output_elmo": True,
        "trainer.num_epochs": 24,
        "vocabulary.min_count.token_characters": 49,
    },
}


@pytest.mark.parametrize("name", CONFIGS)
def test_table1_configs_hold_the_published_values(name):
    config = in_folder("training_config/table1")[f"{name}.jsonnet"]
    for path, expected in CONFIGS[name].items():
        *parts, last = path.split(".")
        found = config
        for part in parts:
            found = found[part]
        assert found.get(last) == expected, path
