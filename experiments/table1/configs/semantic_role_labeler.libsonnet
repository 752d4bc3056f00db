// Changes to training_config/table1/semantic_role_labeler*.jsonnet for English EWT: 10,000 instances, the first 2,000 of dev, smaller
// layers for one core, our own word vectors, and Adam.
local stand_in = import 'data.libsonnet';

{
  dataset_reader+: { max_instances: 10000 },
  validation_dataset_reader: $.dataset_reader { max_instances: 2000 },
  train_data_path: stand_in.data('srl_ewt/train'),
  validation_data_path: stand_in.data('srl_ewt/dev'),
  vocabulary: stand_in.vocabulary,
  model+: {
    text_field_embedder+: { token_embedders+: { tokens+: stand_in.vectors } },
    binary_feature_dim: 10,
    encoder+: { input_size: 100 + 10, hidden_size: 100, num_layers: 4 },
  },
  data_loader: { batch_sampler: { type: 'bucket', batch_size: 40 } },
  trainer+: stand_in.trainer { optimizer: { type: 'adam', lr: 0.002 }, num_epochs: 40, patience: 3 },
}
