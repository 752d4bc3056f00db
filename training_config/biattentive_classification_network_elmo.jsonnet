// SST-5, the row "SST-5", column "ELMo + baseline", of table 1 in Peters et al. 2018, "Deep contextualized word representations".
//   allennlp train training_config/biattentive_classification_network_elmo.jsonnet -s out --include-package elmo_plugin
//   allennlp train training_config/released/biattentive_classification_network_elmo.jsonnet -s out --include-package elmo_plugin
// The first runs on the sample data, offline; the second takes SST-5, GloVe and the Original biLM.
//
// All that ELMo changes in biattentive_classification_network.jsonnet is what stands below: the values AllenNLP shipped last,
// ELMo at the input only, and more dropout there. ELMo at the output too, as AllenNLP first had it (with ELMo dropout 0.5) and as
// the paper has it: biattentive_classification_network_elmo_paper.jsonnet.
//
// To expect on SST-5 (test accuracy): 54.7 +/- 0.5 in the paper (five seeds), 54.7 from AllenNLP's archive (one run).
// Ours: not run (GloVe and the released weights are needed).
local elmo = import 'elmo.libsonnet';

function(setup='sample')
  (import 'biattentive_classification_network.jsonnet')(setup) {
    dataset_reader+: { token_indexers+: { elmo: elmo.indexer } },
    model+: {
      elmo: elmo.module(setup, num_output_representations=1, dropout=0.0),
      use_input_elmo: true,
      embedding_dropout: 0.5,
      pre_encode_feedforward+: { input_dim: super.input_dim + elmo.embedding_dim(setup) },
    },
  }
