// SNLI with ELMo as the appendix of Peters et al. 2018 describes it, where that differs from AllenNLP's esim_elmo.jsonnet.
//   allennlp train training_config/table1/esim_elmo_paper.jsonnet -s out --include-package elmo_plugin
//
// As in the paper: GloVe, fixed; ELMo at the input and at the output of the first LSTM, with layer normalization and an L2
// penalty of 0.001 on the mixes; an L2 penalty of 0.0001 on the LSTM's and the feed-forward layers' matrices; dropout after the
// attention; gradient norms clipped at 5. Not as in the paper: the biLM is not fine-tuned on SNLI's sentences first.
//
// Expected on SNLI (test accuracy): 88.7 +/- 0.17 in the paper. Ours: not run.
local options = import 'original_options.json';

(import 'esim.jsonnet') + {
  dataset_reader+: { token_indexers+: { elmo: { type: 'elmo_characters' } } },
  model+: {
    elmo: {
      options: options,
      pretrained_file: 'original',
      num_output_representations: 2,
      do_layer_norm: true,
      dropout: 0.0,
    },
    use_input_elmo: true,
    use_output_elmo: true,
    attention_dropout: 0.5,
    text_field_embedder+: { token_embedders+: { tokens+: { trainable: false } } },
    encoder+: { input_size+: 2 * options.lstm.projection_dim },
    projection_feedforward+: { input_dim+: 4 * 2 * options.lstm.projection_dim },
    regularizer: {
      regexes: [
        ['scalar_parameters', { type: 'l2', alpha: 0.001 }],
        ['weight_ih|weight_hh|linear_layers.*weight', { type: 'l2', alpha: 0.0001 }],
      ],
    },
  },
  trainer+: { grad_norm: 5.0 },
}
