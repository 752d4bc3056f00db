(import '../table1/esim.jsonnet') + (import 'esim.libsonnet')
