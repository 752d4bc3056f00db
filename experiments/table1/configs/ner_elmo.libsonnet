// Changes to the NER configs for ELMo.
local stand_in = import 'data.libsonnet';
local options = import '../../../elmo_plugin/pretrained/options.json';

{
  model+: {
    text_field_embedder+: { token_embedders+: { elmo+: stand_in.elmo(options) } },
    encoder+: { input_size+: 2 * options.lstm.projection_dim },
  },
}
