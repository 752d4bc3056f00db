// Fine-tuning of the embedded biLM on the sample text, as in pretraining/bilm_fine_tuning.jsonnet.
//   elmo-plugin pretrain training_config/bilm_fine_tuning.jsonnet -s out
// `out` then holds an options.json and a weights.hdf5 for a task's config.
(import 'pretraining/bilm_fine_tuning.jsonnet') + {
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
