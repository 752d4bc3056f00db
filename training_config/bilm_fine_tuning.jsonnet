// table1/bilm_fine_tuning.jsonnet, from the embedded biLM, on the sample text.
//   allennlp train training_config/bilm_fine_tuning.jsonnet -s out --include-package elmo_plugin
// `out` then holds an options.json and a weights.hdf5 for a task's config.
(import 'table1/bilm_fine_tuning.jsonnet') + {
  train_data_path: 'examples/text/train.txt',
  validation_data_path: 'examples/text/heldout.txt',
  model+: {
    options: import '../elmo_plugin/pretrained/options.json',
    pretrained_file: 'embedded',
    frozen_steps: 30,
  },
  data_loader+: { batch_size: 16 },
  trainer+: { optimizer+: { lr: 5e-3 } },
}
