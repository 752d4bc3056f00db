(import 'srl_ewt.libsonnet')((import '../../training_config/semantic_role_labeler_elmo.jsonnet')())
