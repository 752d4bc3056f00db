// table1/ner_elmo_paper.jsonnet on the sample data, with the embedded biLM: offline, smaller.
//   allennlp train training_config/ner_elmo_paper.jsonnet -s out --include-package elmo_plugin
local options = import '../elmo_plugin/pretrained/options.json';

(import 'table1/ner_elmo_paper.jsonnet') + (import 'sample/ner.libsonnet') + {
  model+: {
    text_field_embedder+: { token_embedders+: { elmo+: { options: options, pretrained_file: 'embedded' } } },
    // The same two layers, narrower.
    encoder: {
      type: 'compose',
      encoders: [
        {
          type: 'input_variational_dropout',
          dropout: 0.5,
          encoder: {
            type: 'lstm',
            input_size: 50 + 32 + 2 * options.lstm.projection_dim,
            hidden_size: 64,
            bidirectional: true,
          },
        },
        {
          type: 'input_variational_dropout',
          dropout: 0.5,
          encoder: { type: 'lstm', input_size: 2 * 64, hidden_size: 32, bidirectional: true },
        },
      ],
    },
  },
}
