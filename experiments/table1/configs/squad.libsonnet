// What the two runs on a small part of SQuAD change in training_config/table1/squad*.jsonnet: 3,111 questions, every fourth paragraph of
// 44 articles, dev on 12 articles of New Wikipedia; word vectors of our own; a size for one core. Adam at 0.002 and batches of 20 in
// place of Adadelta and 45, whose first steps are too small for so few of them.
local stand_in = import 'data.libsonnet';
local dim = 50;
// Half of the time on a CPU, the same numbers and weights.
local gru = { type: 'packed_gru' };

{
  dataset_reader+: {
    token_indexers+: { tokens+: { lowercase_tokens: true } },
    passage_length_limit: 200,
    skip_impossible_questions: true,
  },
  validation_dataset_reader: $.dataset_reader { passage_length_limit: null, skip_impossible_questions: false },
  train_data_path: stand_in.data('squad/train_quarter.json'),
  validation_data_path: stand_in.data('squad/dev.json'),
  vocabulary: stand_in.vocabulary { min_count: { token_characters: 20 } },
  model+: {
    text_field_embedder+: {
      token_embedders+: {
        token_characters+: { encoder+: { encoder+: { num_filters: 50 } } },
        tokens+: stand_in.vectors,
      },
    },
    phrase_layer+: gru { input_size: 50 + 100, hidden_size: dim },
    residual_encoder+: gru { input_size: 2 * dim, hidden_size: dim },
    span_start_encoder+: gru { input_size: 2 * dim, hidden_size: dim },
    span_end_encoder+: gru { input_size: 4 * dim, hidden_size: dim },
  },
  data_loader: { batch_sampler: { type: 'bucket', batch_size: 20, sorting_keys: ['passage'] } },
  validation_data_loader: { batch_sampler: { type: 'bucket', batch_size: 60, sorting_keys: ['passage'], shuffle: false } },
  trainer+: stand_in.trainer {
    optimizer: { type: 'adam', lr: 0.002 },
    moving_average: { type: 'exponential', decay: 0.99 },
    num_epochs: 40,
    patience: 3,
  },
}
