// SRL, the row "SRL", column "our baseline", of table 1 in Peters et al. 2018, "Deep contextualized word representations".
//   allennlp train training_config/table1/semantic_role_labeler.jsonnet -s out --include-package elmo_plugin
// on OntoNotes 5: the directories of CoNLL-2012's training and development files come from SRL_TRAIN_DATA_PATH and
// SRL_VALIDATION_DATA_PATH; `allennlp evaluate` scores the test directory.
//
// The values AllenNLP shipped: the model of He et al. 2017. One deviates from the paper's: it stops after 20 epochs without a
// better score, there 200; the paper's baseline was best after 486 epochs, so set trainer.patience to 200 to repeat it. Words keep
// their case while GloVe's have none: a capitalised word starts from a random vector, in AllenNLP too.
//
// Expected on CoNLL-2012 (test F1): 81.4 in the paper. Ours: not run (the data is licensed).
{
  dataset_reader: { type: 'srl' },
  train_data_path: std.extVar('SRL_TRAIN_DATA_PATH'),
  validation_data_path: std.extVar('SRL_VALIDATION_DATA_PATH'),
  model: {
    type: 'srl',
    text_field_embedder: {
      token_embedders: {
        tokens: {
          type: 'embedding',
          embedding_dim: 100,
          pretrained_file: 'https://allennlp.s3.amazonaws.com/datasets/glove/glove.6B.100d.txt.gz',
          trainable: true,
        },
      },
    },
    binary_feature_dim: 100,
    encoder: {
      type: 'alternating_lstm',
      input_size: 100 + 100,
      hidden_size: 300,
      num_layers: 8,
      recurrent_dropout_probability: 0.1,
      use_highway: true,
    },
    initializer: { regexes: [['tag_projection_layer.*weight', { type: 'orthogonal' }]] },
  },
  data_loader: { batch_sampler: { type: 'bucket', batch_size: 80 } },
  trainer: {
    optimizer: { type: 'adadelta', rho: 0.95 },
    validation_metric: '+f1-measure-overall',
    num_epochs: 500,
    grad_clipping: 1.0,
    patience: 20,
  },
}
