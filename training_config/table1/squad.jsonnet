// SQuAD 1.1, the row "SQuAD", column "our baseline", of table 1 in Peters et al. 2018, "Deep contextualized word representations".
//   allennlp train training_config/table1/squad.jsonnet -s out --include-package elmo_plugin
// SQUAD_TRAIN_DATA_PATH and SQUAD_VALIDATION_DATA_PATH are the paths of train-v1.1.json and dev-v1.1.json.
//
// The model is that of Clark and Gardner 2018 for single paragraphs; the values are those of its code, allenai/document-qa at 2f9fa68:
// docqa/scripts/ablate_squad.py, mode `paragraph`, with get_model of ablate_triviaqa.py. AllenNLP never had it: its `bidaf` has no
// self-attention, no bound on the answer's length and no moving average.
//
// Expected on SQuAD (test F1): 81.1 in the paper; dev F1 80.8. Ours: not run (GloVe and the whole of SQuAD are needed).
{
  dataset_reader: {
    type: 'squad',
    // spaCy's words in place of NLTK's, split at hyphens, quotes and currency signs as there. AllenNLP's reader does not split.
    tokenizer: { type: 'document_qa' },
    token_indexers: {
      tokens: { type: 'single_id' },  // cased; AllenNLP's bidaf has lower case
      // The first 14 characters of a word. AllenNLP takes all.
      token_characters: { type: 'truncated_characters', max_characters_per_token: 14, min_padding_length: 5 },
    },
  },
  train_data_path: std.extVar('SQUAD_TRAIN_DATA_PATH'),
  validation_data_path: std.extVar('SQUAD_VALIDATION_DATA_PATH'),
  vocabulary: { min_count: { token_characters: 50 } },
  model: {
    type: 'bidaf_self_attention',
    text_field_embedder: {
      token_embedders: {
        token_characters: {
          type: 'character_encoding',
          embedding: { embedding_dim: 20, vocab_namespace: 'token_characters' },
          encoder: {
            type: 'input_dropout',  // AllenNLP drops what comes out of the convolution
            dropout: 0.2,
            encoder: {
              type: 'cnn',
              embedding_dim: 20,
              num_filters: 100,
              ngram_filter_sizes: [5],
              conv_layer_activation: 'relu',
            },
          },
        },
        // Fixed. A word without a vector has zeros there, after its lower case was tried; AllenNLP gives it a random one.
        tokens: {
          type: 'embedding',
          embedding_dim: 300,
          pretrained_file: 'https://allennlp.s3.amazonaws.com/datasets/glove/glove.840B.300d.txt.gz',
          trainable: false,
        },
      },
    },
    phrase_layer: { type: 'packed_gru', input_size: 100 + 300, hidden_size: 100, bidirectional: true },  // bidaf: LSTM
    residual_encoder: { type: 'packed_gru', input_size: 2 * 100, hidden_size: 100, bidirectional: true },  // bidaf: none
    span_start_encoder: { type: 'packed_gru', input_size: 2 * 100, hidden_size: 100, bidirectional: true },
    span_end_encoder: { type: 'packed_gru', input_size: 4 * 100, hidden_size: 100, bidirectional: true },
    dropout: 0.2,  // one mask for all words; bidaf: one a word
    max_span_length: 17,  // bidaf: any length
    span_loss: 'all_answers',
    initializer: {
      regexes: [
        ['token_characters\\._embedding.*weight', { type: 'uniform', a: -0.05, b: 0.05 }],
        ['_module\\.weight_(ih|hh)', { type: 'truncated_normal', std: 0.05 }],  // AllenNLP has no truncated one
        ['_module\\.bias_(ih|hh)', { type: 'zero' }],
        ['(conv_layer_0|merge|_merge_attention|_predictor)\\.weight', { type: 'xavier_uniform' }],
        ['(conv_layer_0|merge|_merge_attention|_predictor)\\.bias', { type: 'zero' }],
      ],
    },
  },
  // Sorted by the passages' length, with AllenNLP's noise in place of a shuffle among equals.
  data_loader: { batch_sampler: { type: 'bucket', batch_size: 45, sorting_keys: ['passage'], drop_last: true } },
  validation_data_loader: { batch_sampler: { type: 'bucket', batch_size: 45, sorting_keys: ['passage'], shuffle: false } },
  trainer: {
    // TensorFlow's constants: PyTorch's rho of 0.9 and eps of 1e-6 make the first steps ten times larger.
    optimizer: { type: 'adadelta', lr: 1.0, rho: 0.95, eps: 1e-8 },
    // Of all weights from the first step, without the ramp of AllenNLP's defaults. There the epoch is chosen by the raw weights,
    // every 1,200 steps, and scored with the averages; here it is chosen with the averages too, after each epoch (1,946 steps).
    moving_average: { type: 'exponential', decay: 0.999, numerator: 1.0, denominator: 1.0 },
    num_epochs: 26,
    validation_metric: '+f1',
    checkpointer: { keep_most_recent_by_count: 1 },
  },
}
