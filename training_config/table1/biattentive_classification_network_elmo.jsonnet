// SST-5, the row "SST-5", column "ELMo + baseline", of table 1 in Peters et al. 2018, "Deep contextualized word representations".
//   allennlp train training_config/table1/biattentive_classification_network_elmo.jsonnet -s out --include-package elmo_plugin
//
// ELMo changes in biattentive_classification_network.jsonnet only what follows: the values AllenNLP shipped last,
// ELMo at the input only, and more dropout there. ELMo at the output too, as AllenNLP first had it (with ELMo dropout 0.5) and as
// the paper has it: biattentive_classification_network_elmo_paper.jsonnet.
//
// Expected on SST-5 (test accuracy): 54.7 +/- 0.5 in the paper (five seeds), 54.7 from AllenNLP's archive (one run).
// Ours: not run (GloVe and the released weights are needed).
local options = import 'original_options.json';

(import 'biattentive_classification_network.jsonnet') + {
  dataset_reader+: { token_indexers+: { elmo: { type: 'elmo_characters' } } },
  model+: {
    elmo: {
      options: options,
      pretrained_file: 'original',
      num_output_representations: 1,
      do_layer_norm: false,
      dropout: 0.0,
    },
    use_input_elmo: true,
    embedding_dropout: 0.5,
    pre_encode_feedforward+: { input_dim+: 2 * options.lstm.projection_dim },
  },
}
