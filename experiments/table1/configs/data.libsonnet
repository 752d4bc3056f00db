// Paths of the free data sets and of the word vectors, from variables that `python -m experiments.table1` sets.
{
  data(name):: std.extVar('STAND_IN_DATA') + '/' + name,
  // Lower-case word vectors for baseline and ELMo, trained on the embedded biLM's training text (results/word_vectors).
  vectors:: { pretrained_file: std.extVar('STAND_IN_VECTORS'), embedding_dim: 100 },
  vocabulary:: {
    pretrained_files: { tokens: std.extVar('STAND_IN_VECTORS') },
    only_include_pretrained_words: true,
  },
  // The embedded biLM. With the cache, it runs only once on each sentence.
  elmo(options):: { options: options, pretrained_file: 'embedded', state: 'primed', cache: 'memory' },
  trainer:: { checkpointer: { keep_most_recent_by_count: 1 } },
}
