(import '../../training_config/table1/semantic_role_labeler.jsonnet') + (import 'srl_ewt.libsonnet')
