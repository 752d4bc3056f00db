// The ELMo blocks of every config, said once.
//
// setup 'sample': the biLM that comes with this package. setup 'released': the Original biLM of the
// paper, downloaded once. `options` travel inside the archive and `pretrained_file` is dropped when
// an archive is loaded, so that an archive needs none of these files again.
local biLMs = {
  sample: { name: 'embedded', options: import '../elmo_plugin/pretrained/options.json' },
  released: { name: 'original', options: import 'released/original_options.json' },
  '5.5B': { name: '5.5B', options: import 'released/original_options.json' },
};

{
  indexer: { type: 'elmo_characters' },

  // Both directions side by side.
  embedding_dim(setup): 2 * biLMs[setup].options.lstm.projection_dim,

  // ELMo at a model's input.
  token_embedder(setup, dropout=0.0): {
    type: 'elmo_token_embedder',
    options: biLMs[setup].options,
    pretrained_file: biLMs[setup].name,
    do_layer_norm: false,
    dropout: dropout,
  },

  // A model's own `elmo` argument, for ELMo elsewhere than at the input.
  module(setup, num_output_representations=1, dropout=0.0): {
    options: biLMs[setup].options,
    pretrained_file: biLMs[setup].name,
    num_output_representations: num_output_representations,
    do_layer_norm: false,
    dropout: dropout,
  },
}
