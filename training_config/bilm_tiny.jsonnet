// A biLM in a minute on two cores, to try pretraining: pretraining/bilm_tiny.jsonnet on the sample text.
//   elmo-plugin pretrain training_config/bilm_tiny.jsonnet -s out
//   elmo-plugin score out examples/text/heldout.txt --state carry
// `out` then holds options.json and weights.hdf5, which every ELMo reads, and vocabulary.txt, softmax.hdf5 and card.json.
//
// Expected: held-out perplexity (average of both directions) about 2.2 after 10 epochs, from 230 (its words) at the start.
(import 'pretraining/bilm_tiny.jsonnet') + {
  vocabulary+: { min_count: 1 },
  train_data_path: 'examples/text/train.txt',
  validation_data_path: 'examples/text/heldout.txt',
}
