// NER with ELMo as the appendix of Peters et al. 2018 describes it, where that differs from AllenNLP's ner_elmo.jsonnet.
//   allennlp train training_config/ner_elmo_paper.jsonnet -s out --include-package elmo_plugin            sample data, offline
//   allennlp train training_config/released/ner_elmo_paper.jsonnet -s out --include-package elmo_plugin   CoNLL-2003
//
// As in the paper: the first bidirectional LSTM has 200 units, the second 100; variational dropout at the input of both, and
// no other. Not as in the paper: GloVe stands in for the fine-tuned Senna vectors, which AllenNLP cannot load; one run, not
// the mean of five seeds (use `-o` with other values of random_seed, numpy_seed, pytorch_seed).
//
// To expect on CoNLL-2003 (test F1): 92.22 +/- 0.10 in the paper. Ours: not run (the data is licensed).
local lstm(input_size, hidden_size) = {
  type: 'input_variational_dropout',
  dropout: 0.5,
  encoder: { type: 'lstm', input_size: input_size, hidden_size: hidden_size, bidirectional: true },
};

function(setup='sample')
  local ner_elmo = (import 'ner_elmo.jsonnet')(setup);
  local hidden_sizes = if setup == 'released' then [200, 100] else [64, 32];
  ner_elmo {
    model+: {
      dropout: null,
      encoder: {
        type: 'compose',
        encoders: [
          lstm(ner_elmo.model.encoder.input_size, hidden_sizes[0]),
          lstm(2 * hidden_sizes[0], hidden_sizes[1]),
        ],
      },
    },
  }
