// What the two runs on OntoGUM change in training_config/table1/coref*.jsonnet: other files and genres, a model of a size for one
// core, word vectors of its own. ONTOGUM is the folder of train.gold_conll and dev.gold_conll.
local word_dim = 50 + 3 * 10;
local span_dim = 2 * 2 * 64 + 16 + word_dim;

{
  dataset_reader+: { token_indexers+: { turian:: null } },
  train_data_path: std.extVar('ONTOGUM') + '/train.gold_conll',
  validation_data_path: std.extVar('ONTOGUM') + '/dev.gold_conll',
  test_data_path:: null,  // dev is what is reported
  vocabulary: { min_count: { glove: 2 } },
  model+: {
    text_field_embedder+: {
      token_embedders+: {
        glove+: { type: 'embedding', embedding_dim: 50, pretrained_file:: null, trainable: true },
        turian:: null,
        token_characters+: { encoder+: { num_filters: 10 } },
      },
    },
    context_layer+: { input_size: word_dim, hidden_size: 64 },
    mention_feedforward+: { input_dim: span_dim, hidden_dims: 64 },
    antecedent_feedforward+: { input_dim: 3 * span_dim + 3 * 16, hidden_dims: 64 },
    feature_size: 16,
    genres: [
      'academic', 'bio', 'conversation', 'court', 'interview',
      'news', 'speech', 'textbook', 'vlog', 'voyage',
    ],
    spans_per_word: 0.3,
    max_antecedents: 50,
    max_training_sentences: 25,
  },
  trainer+: {
    optimizer+: { lr: 0.002 },
    num_epochs: 12,
    checkpointer: { keep_most_recent_by_count: 1 },
  },
}
