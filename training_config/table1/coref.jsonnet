// Coreference, the row "Coref", column "our baseline", of table 1 in Peters et al. 2018, "Deep contextualized word representations":
// the model of Lee et al. 2017, as in its code (kentonl/e2e-coref at 53c4116, experiments.conf and coref_model.py).
//   allennlp train training_config/table1/coref.jsonnet -s out --include-package elmo_plugin
// The paths of CoNLL-2012's files (one file a split, or a directory of *gold_conll) come from COREF_TRAIN_DATA_PATH,
// COREF_DEV_DATA_PATH and COREF_TEST_DATA_PATH (only read: its words get vectors; `allennlp evaluate` scores it), Turian's vectors from
// TURIAN_PATH (50 dimensions).
//
// AllenNLP's config of this name had other values and a model that lacked much of this one; each difference is noted beside its value.
//
// Expected on CoNLL-2012 (test, average F1): 67.2 in the paper. AllenNLP's: 63.0. Ours: not run (the data is licensed).
{
  dataset_reader: {
    type: 'coref',
    token_indexers: {
      // Cased, and two sets of vectors; AllenNLP's: GloVe 6B alone, which is uncased, on cased words.
      glove: { type: 'single_id', namespace: 'glove' },
      turian: { type: 'single_id', namespace: 'turian' },
      token_characters: { type: 'characters', min_padding_length: 5 },
    },
    max_span_width: 10,
  },
  train_data_path: std.extVar('COREF_TRAIN_DATA_PATH'),
  validation_data_path: std.extVar('COREF_DEV_DATA_PATH'),
  test_data_path: std.extVar('COREF_TEST_DATA_PATH'),
  // A word without a vector is the unknown word, whose vector is 0; AllenNLP's drew one at random.
  vocabulary: {
    pretrained_files: {
      glove: 'https://allennlp.s3.amazonaws.com/datasets/glove/glove.840B.300d.txt.gz',
      turian: std.extVar('TURIAN_PATH'),
    },
    only_include_pretrained_words: true,
  },
  model: {
    type: 'coref',
    text_field_embedder: {
      token_embedders: {
        // Fixed and of length 1; AllenNLP's: fixed, as they stand in the file.
        glove: {
          type: 'unit_length_embedding',
          vocab_namespace: 'glove',
          embedding_dim: 300,
          pretrained_file: 'https://allennlp.s3.amazonaws.com/datasets/glove/glove.840B.300d.txt.gz',
          trainable: false,
        },
        turian: {
          type: 'unit_length_embedding',
          vocab_namespace: 'turian',
          embedding_dim: 50,
          pretrained_file: std.extVar('TURIAN_PATH'),
          trainable: false,
        },
        // AllenNLP's: one filter width, 5, with 100 filters over characters of 16 dimensions.
        token_characters: {
          type: 'character_encoding',
          embedding: { embedding_dim: 8, vocab_namespace: 'token_characters' },
          encoder: {
            type: 'cnn',
            embedding_dim: 8,
            num_filters: 50,
            ngram_filter_sizes: [3, 4, 5],
            conv_layer_activation: 'relu',
          },
        },
      },
    },
    // Coupled gates, a learned start, one dropout mask a sequence; AllenNLP's: a plain LSTM.
    context_layer: {
      type: 'coupled_lstm',
      input_size: 300 + 50 + 3 * 50,
      hidden_size: 200,
      recurrent_dropout: 0.2,
    },
    // Each sentence by itself; AllenNLP's: the document as one sequence.
    encode_by_sentence: true,
    mention_feedforward: {
      input_dim: 2 * 2 * 200 + 20 + 500,
      num_layers: 2,
      hidden_dims: 150,
      activations: 'relu',
      dropout: 0.2,
    },
    antecedent_feedforward: {
      input_dim: 3 * (2 * 2 * 200 + 20 + 500) + 3 * 20,
      num_layers: 2,
      hidden_dims: 150,
      activations: 'relu',
      dropout: 0.2,
    },
    feature_size: 20,
    // AllenNLP's model has neither feature. The genres are OntoNotes'.
    use_speakers: true,
    genres: ['bc', 'bn', 'mz', 'nw', 'pt', 'tc', 'wb'],
    max_span_width: 10,
    spans_per_word: 0.4,
    // AllenNLP's: may cross.
    allow_crossing_spans: false,
    // AllenNLP's: 100.
    max_antecedents: 250,
    // AllenNLP's: from the embedded words.
    head_scores_from_context: true,
    lexical_dropout: 0.5,
    // AllenNLP's model has neither of the next two.
    context_dropout: 0.2,
    feature_dropout: 0.2,
    // At random; AllenNLP's trains on whole documents.
    max_training_sentences: 50,
    initializer: {
      regexes: [
        ['.*linear_layers.*weight', { type: 'xavier_uniform' }],
        ['.*linear_layers.*bias', { type: 'zero' }],
        ['.*(scorer|_global_attention)._module.weight', { type: 'xavier_uniform' }],
        ['.*_(distance|speaker|genre|span_width)_embedding.weight', { type: 'xavier_uniform' }],
      ],
    },
  },
  data_loader: { batch_size: 1, shuffle: true },
  trainer: {
    optimizer: { type: 'adam', lr: 0.001 },
    // Times 0.999 after every 100 documents; AllenNLP's: halved when dev F1 does not rise.
    learning_rate_scheduler: { type: 'staircase_decay', decay_rate: 0.999, decay_steps: 100 },
    grad_norm: 5.0,
    validation_metric: '+coref_f1',
    // 400,000 steps of one of 2,802 documents; AllenNLP's: at most 150 epochs, patience 10.
    num_epochs: 143,
    checkpointer: { keep_most_recent_by_count: 2 },
  },
}
