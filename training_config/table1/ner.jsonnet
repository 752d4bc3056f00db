// NER, the row "NER", column "our baseline", of table 1 in Peters et al. 2018, "Deep contextualized word representations".
//   allennlp train training_config/table1/ner.jsonnet -s out --include-package elmo_plugin
// on CoNLL-2003: the paths of its files come from NER_TRAIN_DATA_PATH, NER_TEST_A_PATH (testa, to choose the model) and
// NER_TEST_B_PATH (testb, only read: its words get GloVe rows); `allennlp evaluate` scores it.
//
// The values AllenNLP shipped. They deviate from the paper's, as far as known: GloVe instead of Senna vectors, two layers of
// 200 instead of 200 and 100, plain instead of variational dropout; ner_elmo_paper.jsonnet has the paper's, with ELMo.
// Shuffled batches, as AllenNLP had before version 1; its later config forgot them.
//
// Expected on CoNLL-2003 (test F1): 90.15 in the paper, 89.91 +/- 0.35 from AllenNLP's. Ours: not run (the data is licensed).
{
  dataset_reader: {
    type: 'conll2003',
    tag_label: 'ner',
    convert_to_coding_scheme: 'BIOUL',
    token_indexers: {
      tokens: { type: 'single_id', lowercase_tokens: true },
      token_characters: { type: 'characters', min_padding_length: 3 },
    },
  },
  train_data_path: std.extVar('NER_TRAIN_DATA_PATH'),
  validation_data_path: std.extVar('NER_TEST_A_PATH'),
  test_data_path: std.extVar('NER_TEST_B_PATH'),
  model: {
    type: 'crf_tagger',
    label_encoding: 'BIOUL',
    constrain_crf_decoding: true,
    calculate_span_f1: true,
    dropout: 0.5,
    include_start_end_transitions: false,
    text_field_embedder: {
      token_embedders: {
        tokens: {
          type: 'embedding',
          embedding_dim: 50,
          pretrained_file: 'https://allennlp.s3.amazonaws.com/datasets/glove/glove.6B.50d.txt.gz',
          trainable: true,
        },
        token_characters: {
          type: 'character_encoding',
          embedding: { embedding_dim: 16 },
          encoder: {
            type: 'cnn',
            embedding_dim: 16,
            num_filters: 128,
            ngram_filter_sizes: [3],
            conv_layer_activation: 'relu',
          },
        },
      },
    },
    encoder: {
      type: 'lstm',
      input_size: 50 + 128,
      hidden_size: 200,
      num_layers: 2,
      dropout: 0.5,
      bidirectional: true,
    },
  },
  data_loader: { batch_size: 64, shuffle: true },
  trainer: {
    optimizer: { type: 'adam', lr: 0.001 },
    checkpointer: { keep_most_recent_by_count: 3 },
    validation_metric: '+f1-measure-overall',
    num_epochs: 75,
    grad_norm: 5.0,
    patience: 25,
  },
}
