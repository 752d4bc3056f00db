// Where the free stand-ins for the paper's data are, and their word vectors: the environment says it, `python -m experiments.table1` sets it.
{
  data(name):: std.extVar('STAND_IN_DATA') + '/' + name,
  // Trained on the very text that the embedded biLM has read (results/word_vectors), in lower case: both rows of a task have them.
  vectors:: { pretrained_file: std.extVar('STAND_IN_VECTORS'), embedding_dim: 100 },
  vocabulary:: {
    pretrained_files: { tokens: std.extVar('STAND_IN_VECTORS') },
    only_include_pretrained_words: true,
  },
  // The embedded biLM; a sentence that comes again is not computed again.
  elmo(options):: { options: options, pretrained_file: 'embedded', state: 'primed', cache: 'memory' },
  trainer:: { checkpointer: { keep_most_recent_by_count: 1 } },
}
