// What NER on a stand-in changes in training_config/table1/ner*.jsonnet, for the folder given: a size for one core, word vectors of
// our own, patience. There is no test split.
local stand_in = import 'data.libsonnet';

function(folder) {
  train_data_path: stand_in.data(folder + '/train.txt'),
  validation_data_path: stand_in.data(folder + '/dev.txt'),
  test_data_path:: null,
  vocabulary: stand_in.vocabulary,
  model+: {
    text_field_embedder+: {
      token_embedders+: {
        tokens+: stand_in.vectors,
        // As many rows as characters; AllenNLP's has as many as words.
        token_characters+: { embedding+: { vocab_namespace: 'token_characters' }, encoder+: { num_filters: 32 } },
      },
    },
    encoder+: { input_size: 100 + 32, hidden_size: 100 },
  },
  data_loader+: { batch_size: 32 },
  trainer+: stand_in.trainer { optimizer+: { lr: 0.002 }, num_epochs: 60, patience: 6 },
}
