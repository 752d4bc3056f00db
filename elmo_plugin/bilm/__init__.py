"""
The biLM and ELMo in plain PyTorch: torch, numpy and h5py, never AllenNLP.

Shapes are named once, here, and mean the same everywhere:

- `batch_size`: sentences in a batch.
- `num_tokens`: tokens of the longest sentence, without the boundaries; `num_tokens + 2` with them.
- `num_characters`: character ids per token, boundaries of the word included (50 in the released
files).
- `projection_dim`: width of one direction's output (512 in the Original biLM).
- `cell_size`: width of one direction's memory cell (4096).
- `num_layers`: biLSTM layers (2); `mixture_size = num_layers + 1` layers are mixed.
- `embedding_dim = 2 * projection_dim`: forward half first.

Masks are bool, True = real token. Layers are a list: index 0 is the token layer (its
`projection_dim` vector twice), 1 and up are the biLSTM layers.
"""
