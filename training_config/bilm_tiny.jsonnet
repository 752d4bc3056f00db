// A biLM in a minute on two cores, to see pretraining run: table1/bilm_tiny.jsonnet on the sample text.
//   allennlp train training_config/bilm_tiny.jsonnet -s out --include-package elmo_plugin
//   allennlp evaluate out/model.tar.gz examples/text/heldout.txt --include-package elmo_plugin
// `out` then holds options.json and weights.hdf5, which every ELMo reads, and vocabulary.txt, softmax.hdf5 and card.json.
//
// To expect: held-out perplexity (average of both directions) about 2.2 after 10 epochs, from 230 (its words) at the start.
(import 'table1/bilm_tiny.jsonnet') + {
  vocabulary+: { min_count: 1 },
  train_data_path: 'examples/text/train.txt',
  validation_data_path: 'examples/text/heldout.txt',
}
