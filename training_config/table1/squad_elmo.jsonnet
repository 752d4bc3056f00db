// SQuAD 1.1, the row "SQuAD", column "ELMo + baseline", of table 1 in Peters et al. 2018, "Deep contextualized word representations".
//   allennlp train training_config/table1/squad_elmo.jsonnet -s out --include-package elmo_plugin
//
// What stands below is all that the paper's run with ELMo changes in squad.jsonnet: ELMo before and after the shared GRU, GRUs of 90
// units for 100, and what follows from that (allenai/document-qa at 2f9fa68, docqa/elmo/ablate_elmo_model.py, mode `both`). AllenNLP's
// bidaf_elmo has ELMo at the input only. Not as in the paper: the biLM is not fine-tuned on SQuAD's text first
// (training_config/bilm_fine_tuning.jsonnet does that).
//
// Expected on SQuAD (test F1): 85.8 in the paper; dev F1 85.6, ELMo at the input alone 85.1, at the output alone 84.8.
// Ours: not run (the released weights, GloVe and the whole of SQuAD are needed).
local options = import 'original_options.json';
local elmo_dim = 2 * options.lstm.projection_dim;

(import 'squad.jsonnet') + {
  dataset_reader+: { token_indexers+: { elmo: { type: 'elmo_characters' } } },
  vocabulary: { min_count: { token_characters: 49 } },
  model+: {
    // Two mixes, each for passage and question; the whole passage is one sequence.
    elmo: {
      options: options,
      pretrained_file: 'original',
      num_output_representations: 2,
      do_layer_norm: false,
      dropout: 0.5,
    },
    use_input_elmo: true,
    use_output_elmo: true,
    phrase_layer+: { input_size: 100 + 300 + elmo_dim, hidden_size: 90 },
    residual_encoder+: { input_size: 2 * 90, hidden_size: 90 },
    span_start_encoder+: { input_size: 2 * 90, hidden_size: 90 },
    span_end_encoder+: { input_size: 4 * 90, hidden_size: 90 },
    span_loss: 'one_answer',  // drawn; the same in SQuAD, whose training questions have one answer
  },
  trainer+: { num_epochs: 24 },
}
