local stand_in = import 'data.libsonnet';
local options = import '../../../elmo_plugin/pretrained/options.json';

(import '../../../training_config/table1/squad_elmo.jsonnet') + (import 'squad.libsonnet') + {
  model+: {
    elmo+: stand_in.elmo(options),
    phrase_layer+: { input_size: 50 + 100 + 2 * options.lstm.projection_dim },
  },
}
