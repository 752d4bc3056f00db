local options = import '../../elmo_plugin/pretrained/options.json';

(import '../../training_config/table1/esim_elmo.jsonnet') + (import 'snli.libsonnet') + {
  model+: {
    text_field_embedder+: { token_embedders+: { tokens:: null, elmo+: { options: options, pretrained_file: 'embedded' } } },
    encoder+: { input_size: 2 * options.lstm.projection_dim },
  },
}
