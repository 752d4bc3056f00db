// table1/esim_elmo_paper.jsonnet on the sample data, with the embedded biLM: offline, smaller.
//   allennlp train training_config/esim_elmo_paper.jsonnet -s out --include-package elmo_plugin
local options = import '../elmo_plugin/pretrained/options.json';

(import 'table1/esim_elmo_paper.jsonnet') + (import 'sample/esim.libsonnet') + {
  model+: {
    elmo+: { options: options, pretrained_file: 'embedded' },
    encoder+: { input_size+: 2 * options.lstm.projection_dim },
    projection_feedforward+: { input_dim+: 4 * 2 * options.lstm.projection_dim },
  },
}
