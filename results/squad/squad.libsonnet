// What the two runs on SQuAD share: small sizes and word vectors of their own, since no GloVe was at hand. SQUAD is the folder of
// train_quarter.json and dev.json.
local dim = 50;

{
  dataset_reader+: { passage_length_limit: 300, skip_impossible_questions: true },
  validation_dataset_reader: $.dataset_reader { passage_length_limit: null, skip_impossible_questions: false },
  train_data_path: std.extVar('SQUAD') + '/train_quarter.json',
  validation_data_path: std.extVar('SQUAD') + '/dev.json',
  vocabulary: { min_count: { tokens: 2, token_characters: 20 } },
  model+: {
    text_field_embedder+: {
      token_embedders+: {
        token_characters+: { encoder+: { encoder+: { num_filters: 50 } } },
        tokens: { type: 'embedding', embedding_dim: 100 },
      },
    },
    phrase_layer+: { input_size: 50 + 100, hidden_size: dim },
    residual_encoder+: { input_size: 2 * dim, hidden_size: dim },
    span_start_encoder+: { input_size: 2 * dim, hidden_size: dim },
    span_end_encoder+: { input_size: 4 * dim, hidden_size: dim },
  },
  data_loader: { batch_sampler: { type: 'bucket', batch_size: 20, sorting_keys: ['passage'] } },
  trainer+: {
    optimizer: { type: 'adam', lr: 0.002 },
    moving_average: { type: 'exponential', decay: 0.99 },
    num_epochs: 8,
  },
}
