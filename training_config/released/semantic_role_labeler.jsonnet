(import '../semantic_role_labeler.jsonnet')(setup='released')
