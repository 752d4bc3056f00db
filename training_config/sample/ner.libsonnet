// Overrides with which table1/ner*.jsonnet runs offline in a few minutes: the sample data, a smaller model, word vectors of its own.
{
  train_data_path: 'examples/ner/train.txt',
  validation_data_path: 'examples/ner/dev.txt',
  test_data_path: 'examples/ner/test.txt',
  model+: {
    text_field_embedder+: {
      token_embedders+: {
        tokens+: { pretrained_file:: null },
        // Without the namespace the embedding has a row for each word, too few if a small text has fewer words than characters.
        token_characters+: { embedding+: { vocab_namespace: 'token_characters' }, encoder+: { num_filters: 32 } },
      },
    },
    encoder+: { input_size: 50 + 32, hidden_size: 64 },
  },
  data_loader+: { batch_size: 16 },
  trainer+: { optimizer+: { lr: 0.003 }, num_epochs: 10 },
}
