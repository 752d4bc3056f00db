(import '../table1/squad.jsonnet') + (import 'squad.libsonnet')
