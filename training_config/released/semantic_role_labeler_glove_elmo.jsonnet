(import '../semantic_role_labeler_glove_elmo.jsonnet')(setup='released')
