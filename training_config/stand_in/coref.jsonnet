(import '../table1/coref.jsonnet') + (import 'coref.libsonnet')
