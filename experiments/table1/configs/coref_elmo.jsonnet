local stand_in = import 'data.libsonnet';
local options = import '../../../elmo_plugin/pretrained/options.json';

(import '../../../training_config/table1/coref_elmo.jsonnet') + (import 'coref.libsonnet') + {
  model+: {
    // The LSTM state is zero at the start of each sentence, as in the paper's run.
    elmo+: stand_in.elmo(options) { state: 'reset' },
    context_layer+: { input_size+: 2 * options.lstm.projection_dim },
  },
}
