// SST-5 with ELMo as the appendix of Peters et al. 2018 describes it, where that differs from AllenNLP's
// biattentive_classification_network_elmo.jsonnet.
//   allennlp train training_config/table1/biattentive_classification_network_elmo_paper.jsonnet -s out --include-package elmo_plugin
//
// As in the paper: two ReLU layers with dropout in place of maxout; training on phrases of at least four tokens; learning rate
// 0.0001; ELMo at input and output, with an L2 penalty of 0.001 on the mixes. The paper does not say how wide the ReLU layers
// are: here as the maxout layers. It is silent on ELMo's dropout: 0.5 as AllenNLP's first config with both placements.
//
// Expected on SST-5 (test accuracy): 54.7 +/- 0.5 in the paper (five seeds). Ours: not run.
local options = import 'original_options.json';

(import 'biattentive_classification_network.jsonnet') + {
  dataset_reader+: { token_indexers+: { elmo: { type: 'elmo_characters' } }, min_phrase_length: 4 },
  validation_dataset_reader+: { min_phrase_length: 1 },
  model+: {
    elmo: {
      options: options,
      pretrained_file: 'original',
      num_output_representations: 2,
      do_layer_norm: false,
      dropout: 0.5,
    },
    use_input_elmo: true,
    use_integrator_output_elmo: true,
    pre_encode_feedforward+: { input_dim+: 2 * options.lstm.projection_dim },
    output_layer: {
      input_dim: 4 * (2 * 300 + 2 * options.lstm.projection_dim),
      num_layers: 3,
      hidden_dims: [1200, 600, 5],
      activations: ['relu', 'relu', 'linear'],
      dropout: [0.2, 0.3, 0.0],
    },
    regularizer: { regexes: [['scalar_parameters', { type: 'l2', alpha: 0.001 }]] },
  },
  trainer+: { optimizer+: { lr: 0.0001 } },
}
