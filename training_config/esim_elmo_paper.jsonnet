// SNLI with ELMo as the appendix of Peters et al. 2018 describes it, where that differs from AllenNLP's esim_elmo.jsonnet.
//   allennlp train training_config/esim_elmo_paper.jsonnet -s out --include-package elmo_plugin            sample data, offline
//   allennlp train training_config/released/esim_elmo_paper.jsonnet -s out --include-package elmo_plugin   SNLI, GloVe, Original
//
// As in the paper: GloVe, fixed; ELMo at the input and at the output of the first LSTM, with layer normalization and an L2
// penalty of 0.001 on the mixes; an L2 penalty of 0.0001 on the LSTM's and the feed-forward layers' matrices; dropout after the
// attention; gradient norms clipped at 5. Not as in the paper: the biLM is not fine-tuned on SNLI's sentences first.
//
// To expect on SNLI (test accuracy): 88.7 +/- 0.17 in the paper. Ours: not run.
local elmo = import 'elmo.libsonnet';

function(setup='sample')
  (import 'esim.jsonnet')(setup) {
    dataset_reader+: { token_indexers+: { elmo: elmo.indexer } },
    model+: {
      elmo: elmo.module(setup, num_output_representations=2, dropout=0.0) + { do_layer_norm: true },
      use_input_elmo: true,
      use_output_elmo: true,
      attention_dropout: 0.5,
      // Word vectors that no file gives must train.
      text_field_embedder+: { token_embedders+: { tokens+: { trainable: setup != 'released' } } },
      encoder+: { input_size: super.input_size + elmo.embedding_dim(setup) },
      projection_feedforward+: { input_dim: super.input_dim + 4 * elmo.embedding_dim(setup) },
      regularizer: {
        regexes: [
          ['scalar_parameters', { type: 'l2', alpha: 0.001 }],
          ['weight_ih|weight_hh|linear_layers.*weight', { type: 'l2', alpha: 0.0001 }],
        ],
      },
    },
    trainer+: { grad_norm: 5.0 },
  }
