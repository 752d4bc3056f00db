(import '../bilm_cpu.jsonnet')(setup='released')
