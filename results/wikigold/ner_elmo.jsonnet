local options = import '../../elmo_plugin/pretrained/options.json';

(import '../../training_config/table1/ner_elmo.jsonnet') + (import 'wikigold.libsonnet') + {
  model+: {
    text_field_embedder+: { token_embedders+: { elmo+: { options: options, pretrained_file: 'embedded' } } },
    encoder+: { input_size+: 2 * options.lstm.projection_dim },
  },
}
