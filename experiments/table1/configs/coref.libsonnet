// Changes to training_config/table1/coref*.jsonnet for OntoGUM: its genres, smaller layers for one core, and our own word vectors.
// Scores are those on dev.
local stand_in = import 'data.libsonnet';
local word_dim = 100 + 3 * 10;
local span_dim = 2 * 2 * 64 + 16 + word_dim;

{
  dataset_reader+: { token_indexers+: { glove+: { lowercase_tokens: true }, turian:: null } },
  train_data_path: stand_in.data('coref_ontogum/train.gold_conll'),
  validation_data_path: stand_in.data('coref_ontogum/dev.gold_conll'),
  test_data_path:: null,
  vocabulary: stand_in.vocabulary { pretrained_files: { glove: stand_in.vectors.pretrained_file } },
  model+: {
    text_field_embedder+: {
      token_embedders+: {
        glove+: stand_in.vectors,
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
  trainer+: stand_in.trainer { optimizer+: { lr: 0.002 }, num_epochs: 40, patience: 4 },
}
