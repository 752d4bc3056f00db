// Changes to training_config/table1/esim*.jsonnet for a part of SNLI: 20,000 training pairs, the first 5,000 of dev, smaller layers for
// one core, our own word vectors, and less dropout. With a dropout of 0.5 on so few units, the baseline takes four times as long to reach
// the same score. There is no test split.
local stand_in = import 'data.libsonnet';

{
  validation_dataset_reader: $.dataset_reader { max_instances: 5000 },
  train_data_path: stand_in.data('snli/train.jsonl'),
  validation_data_path: stand_in.data('snli/dev.jsonl'),
  test_data_path:: null,
  vocabulary: stand_in.vocabulary,
  model+: {
    dropout: 0.2,
    text_field_embedder+: { token_embedders+: { tokens+: stand_in.vectors { trainable: false } } },
    encoder+: { input_size: 100, hidden_size: 64 },
    projection_feedforward+: { input_dim: 4 * 2 * 64, hidden_dims: 64 },
    inference_encoder+: { input_size: 64, hidden_size: 64 },
    output_feedforward+: { input_dim: 4 * 2 * 64, hidden_dims: 64 },
    output_logit+: { input_dim: 64 },
  },
  data_loader+: { batch_sampler+: { batch_size: 64 } },
  trainer+: stand_in.trainer { optimizer: { type: 'adam', lr: 0.002 }, num_epochs: 30, patience: 3 },
}
