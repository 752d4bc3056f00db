"""What a pair's features take from its document: speakers and genre."""

from typing import Any, Dict, List, Optional

import torch
from allennlp.common.checks import ConfigurationError

from elmo_plugin.modules.coref.sentences import from_metadata


def speaker_ids(speakers: List[List[str]], spans: torch.Tensor) -> torch.Tensor:
    """
    # Parameters

    speakers : `List[List[str]]`
        Of each document's tokens.
    spans : `torch.Tensor`
        First and last token, shape `(batch_size, num_spans, 2)`.

    # Returns

    `torch.Tensor`
        A number for the speaker of each span's first token, shape `(batch_size, num_spans)`. Equal
        names in a document have equal numbers; the numbers mean nothing else.
    """
    rows = []
    for names, starts in zip(speakers, spans[..., 0].tolist()):
        ids = {name: index for index, name in enumerate(dict.fromkeys(names))}
        rows.append([ids[names[start]] for start in starts])
    return torch.tensor(rows, device=spans.device)


def genre_ids(metadata: Optional[List[Dict[str, Any]]], genres: List[str]) -> torch.Tensor:
    """
    # Parameters

    metadata : `List[Dict[str, Any]]`, optional
        The `genre` of each document, empty if it is not known.
    genres : `List[str]`
        Those that the model knows.

    # Returns

    `torch.Tensor`
        Which of them each document's is, -1 if it is not known, shape `(batch_size,)`.

    # Raises

    `ConfigurationError`
        If a genre is none of them.
    """
    ids = []
    for index, genre in enumerate(from_metadata(metadata, "genre")):
        if genre and genre not in genres:
            key = metadata[index].get("document_key") if metadata else None
            raise ConfigurationError(
                f"found the genre {genre!r}{f' of document {key!r}' if key else ''}, expected one "
                f"of the model's genres {genres}, or an empty one: genre not known"
            )
        ids.append(genres.index(genre) if genre else -1)
    return torch.tensor(ids)
