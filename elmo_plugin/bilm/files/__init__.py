"""Read and write files: released weights, other formats, and the folders of runs."""
