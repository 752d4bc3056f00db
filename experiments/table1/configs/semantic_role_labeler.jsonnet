(import '../../../training_config/table1/semantic_role_labeler.jsonnet') + (import 'semantic_role_labeler.libsonnet') + {
  dataset_reader+: { token_indexers: { tokens: { type: 'single_id', lowercase_tokens: true } } },
}
