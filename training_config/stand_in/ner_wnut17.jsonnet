(import '../table1/ner.jsonnet') + (import 'ner.libsonnet')('wnut17')
