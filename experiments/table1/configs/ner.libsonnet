// Function from the folder of a free NER data set to changes to training_config/table1/ner*.jsonnet: smaller layers for one core, our own
// word vectors, and another patience. There is no test split.
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
        // One embedding row for each character; in AllenNLP's config, one for each word.
        token_characters+: { embedding+: { vocab_namespace: 'token_characters' }, encoder+: { num_filters: 32 } },
      },
    },
    encoder+: { input_size: 100 + 32, hidden_size: 100 },
  },
  data_loader+: { batch_size: 32 },
  trainer+: stand_in.trainer { optimizer+: { lr: 0.002 }, num_epochs: 60, patience: 6 },
}
