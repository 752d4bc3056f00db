// NER with ELMo as the appendix of Peters et al. 2018 describes it, where that differs from AllenNLP's ner_elmo.jsonnet.
//   allennlp train training_config/table1/ner_elmo_paper.jsonnet -s out --include-package elmo_plugin
//
// As in the paper: the first bidirectional LSTM has 200 units, the second 100; variational dropout at the input of both, and
// no other. Not as in the paper: GloVe stands in for the fine-tuned Senna vectors, which AllenNLP cannot load; one run, not
// the mean of five seeds (use `-o` with other values of random_seed, numpy_seed, pytorch_seed).
//
// Expected on CoNLL-2003 (test F1): 92.22 +/- 0.10 in the paper. Ours: not run (the data is licensed).
local ner_elmo = import 'ner_elmo.jsonnet';

ner_elmo + {
  model+: {
    dropout: null,
    encoder: {
      type: 'compose',
      encoders: [
        {
          type: 'input_variational_dropout',
          dropout: 0.5,
          encoder: {
            type: 'lstm',
            input_size: ner_elmo.model.encoder.input_size,
            hidden_size: 200,
            bidirectional: true,
          },
        },
        {
          type: 'input_variational_dropout',
          dropout: 0.5,
          encoder: { type: 'lstm', input_size: 2 * 200, hidden_size: 100, bidirectional: true },
        },
      ],
    },
  },
}
