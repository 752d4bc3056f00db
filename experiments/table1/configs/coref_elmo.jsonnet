local stand_in = import 'data.libsonnet';
local options = import '../../../elmo_plugin/pretrained/options.json';

(import '../../../training_config/table1/coref_elmo.jsonnet') + (import 'coref.libsonnet') + {
  model+: {
    // Each sentence from a zero state, as in the paper's run.
    elmo+: stand_in.elmo(options) { state: 'reset' },
    context_layer+: { input_size+: 2 * options.lstm.projection_dim },
  },
}
