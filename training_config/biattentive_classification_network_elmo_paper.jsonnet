// SST-5 with ELMo as the appendix of Peters et al. 2018 describes it, where that differs from AllenNLP's
// biattentive_classification_network_elmo.jsonnet.
//   allennlp train training_config/biattentive_classification_network_elmo_paper.jsonnet -s out --include-package elmo_plugin
//   allennlp train training_config/released/biattentive_classification_network_elmo_paper.jsonnet -s out --include-package elmo_plugin
//
// As in the paper: two ReLU layers with dropout in place of maxout; training on phrases of at least four tokens; learning rate
// 0.0001; ELMo at input and output, with an L2 penalty of 0.001 on the mixes. The paper does not say how wide the ReLU layers
// are: here as the maxout layers. It is silent on ELMo's dropout: 0.5 as AllenNLP's first config with both placements.
//
// To expect on SST-5 (test accuracy): 54.7 +/- 0.5 in the paper (five seeds). Ours: not run.
local elmo = import 'elmo.libsonnet';

function(setup='sample')
  local baseline = (import 'biattentive_classification_network.jsonnet')(setup);
  baseline {
    dataset_reader+: { token_indexers+: { elmo: elmo.indexer }, min_phrase_length: 4 },
    validation_dataset_reader+: { min_phrase_length: 1 },
    model+: {
      elmo: elmo.module(setup, num_output_representations=2, dropout=0.5),
      use_input_elmo: true,
      use_integrator_output_elmo: true,
      pre_encode_feedforward+: { input_dim: super.input_dim + elmo.embedding_dim(setup) },
      output_layer: {
        input_dim: baseline.model.output_layer.input_dim + 4 * elmo.embedding_dim(setup),
        num_layers: 3,
        hidden_dims: baseline.model.output_layer.output_dims,
        activations: ['relu', 'relu', 'linear'],
        dropout: [0.2, 0.3, 0.0],
      },
      regularizer: { regexes: [['scalar_parameters', { type: 'l2', alpha: 0.001 }]] },
    },
    // The sample is too small for the paper's rate.
    [if setup == 'released' then 'trainer']+: { optimizer+: { lr: 0.0001 } },
  }
