// Baseline and ELMo both have the word vectors, as in the paper. AllenNLP's config training_config/table1/esim_elmo.jsonnet drops them.
local stand_in = import 'data.libsonnet';
local options = import '../../../elmo_plugin/pretrained/options.json';

(import '../../../training_config/table1/esim.jsonnet') + (import 'esim.libsonnet') + {
  dataset_reader+: { token_indexers+: { elmo: { type: 'elmo_characters' } } },
  model+: {
    elmo: stand_in.elmo(options) { num_output_representations: 1, do_layer_norm: false, dropout: 0.0 },
    use_input_elmo: true,
    encoder+: { input_size+: 2 * options.lstm.projection_dim },
  },
}
