// SRL with the biLM that was trained on 5.5 billion tokens of Wikipedia and news; AllenNLP called it srl_elmo_5.5B.
//   allennlp train training_config/semantic_role_labeler_elmo_5.5B.jsonnet -s out --include-package elmo_plugin            sample data, offline
//   allennlp train training_config/released/semantic_role_labeler_elmo_5.5B.jsonnet -s out --include-package elmo_plugin   OntoNotes 5, 5.5B
//
// The biLM is the only difference to semantic_role_labeler_elmo.jsonnet, and in the sample setup there is none.
//
// To expect on CoNLL-2012 (test F1): 84.93 from AllenNLP's archive (one run). Ours: not run (the data is licensed).
function(setup='sample')
  (import 'semantic_role_labeler_elmo.jsonnet')(setup, biLM=if setup == 'released' then '5.5B' else setup)
