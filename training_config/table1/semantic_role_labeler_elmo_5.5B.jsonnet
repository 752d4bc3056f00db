// SRL with the biLM that was trained on 5.5 billion tokens of Wikipedia and news; AllenNLP called it srl_elmo_5.5B.
//   allennlp train training_config/table1/semantic_role_labeler_elmo_5.5B.jsonnet -s out --include-package elmo_plugin
//
// The biLM is the only difference to semantic_role_labeler_elmo.jsonnet; its shapes are the Original's.
//
// Expected on CoNLL-2012 (test F1): 84.93 from AllenNLP's archive (one run). Ours: not run (the data is licensed).
(import 'semantic_role_labeler_elmo.jsonnet') + {
  model+: { text_field_embedder+: { token_embedders+: { elmo+: { pretrained_file: '5.5B' } } } },
}
