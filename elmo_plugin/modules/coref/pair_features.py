"""What is known of a pair beside its spans' vectors: distance, speakers, genre."""

from typing import Any, Dict, List, Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.modules.token_embedders import Embedding
from allennlp.nn import util

from elmo_plugin.modules.coref.antecedents import Antecedents
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


def pair_features(
    antecedents: Antecedents,
    spans: torch.Tensor,
    metadata: Optional[List[Dict[str, Any]]],
    distance_embedding: Embedding,
    speaker_embedding: Optional[Embedding],
    genre_embedding: Optional[Embedding],
    genres: Optional[List[str]],
) -> torch.Tensor:
    """
    # Parameters

    antecedents : `Antecedents`
    spans : `torch.Tensor`
        First and last token of the kept spans, shape `(batch_size, num_kept, 2)`.
    metadata : `List[Dict[str, Any]]`, optional
        The `speakers` and the `genre` of each document, where they are features.
    distance_embedding : `Embedding`
        Of how many kept spans the antecedent stands before the span, in buckets.
    speaker_embedding : `Embedding`, optional
        Of whether both have the same speaker.
    genre_embedding : `Embedding`, optional
        Of the document's genre.
    genres : `List[str]`, optional
        Those that the model knows.

    # Returns

    `torch.Tensor`
        Of the real pairs, in the order of `antecedents.mask`, shape `(num_pairs, feature_dim)`.

    # Raises

    `ConfigurationError`
        If a document's genre is none of `genres`.
    `ValueError`
        If the metadata lacks what a feature needs.
    """
    mask, indices = antecedents.mask, antecedents.indices
    position = torch.arange(mask.size(1), device=mask.device).unsqueeze(1)
    distance = util.bucket_values(
        (position - indices)[mask], num_total_buckets=distance_embedding.num_embeddings
    )
    features = [distance_embedding(distance)]
    if speaker_embedding is not None:
        speakers = speaker_ids(from_metadata(metadata, "speakers"), spans)
        same = speakers.unsqueeze(2) == antecedents.select(speakers)
        features.append(speaker_embedding(same[mask].long()))
    if genre_embedding is not None and genres is not None:
        ids = genre_ids(metadata, genres).to(mask.device)
        vectors = genre_embedding(ids.clamp(min=0)) * (ids >= 0).unsqueeze(1)
        features.append(vectors[mask.nonzero()[:, 0]])
    return torch.cat(features, dim=-1)
