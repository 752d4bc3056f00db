"""Check for keys of AllenNLP 0.9 in a training config, which AllenNLP 2 rejects or ignores."""

from typing import Any

from allennlp.common.checks import ConfigurationError

PAGE = "docs/allennlp_0.9.md"

# Maps each part of the config ("" is the top level) to its old keys, and these to what to write.
_GONE: dict[str, dict[str, str]] = {
    "": {
        "iterator": "data_loader",
        "validation_iterator": "validation_data_loader",
    },
    "dataset_reader": {"lazy": "data_loader: {max_instances_in_memory: ...}"},
    "validation_dataset_reader": {"lazy": "validation_data_loader: {max_instances_in_memory: ...}"},
    "trainer": {
        "num_serialized_models_to_keep": "checkpointer: {keep_most_recent_by_count: ...}",
        "keep_serialized_model_every_num_seconds": "nothing like it; see the keys of checkpointer",
        "model_save_interval": "checkpointer: {save_every_num_seconds: ...}",
        "shuffle": "data_loader: {shuffle: ...}",
        "summary_interval": "a callback of type tensorboard",
        "histogram_interval": "a callback of type tensorboard",
        "should_log_parameter_statistics": "a callback of type tensorboard",
        "should_log_learning_rate": "a callback of type tensorboard",
        "log_batch_size_period": "nothing",
    },
}

# The config of a text field embedder for AllenNLP 2 has at least one of these keys.
_KEYS_OF_2 = {"token_embedders", "type", "_pretrained"}


def check_not_of_0_9(config: dict[str, Any]) -> None:
    """
    Raise a `ConfigurationError` if a training config has keys of AllenNLP 0.9 that AllenNLP 2
    refuses or ignores. The message names all of them with their replacements.
    """
    found: list[str] = []
    for part, gone in _GONE.items():
        inside = _inside(config, part) if part else config
        for key, instead in gone.items():
            if key in inside:
                found.append(f"{part + '.' if part else ''}{key}: now {instead}")
    if isinstance(_inside(config, "trainer").get("cuda_device"), list):
        found.append("trainer.cuda_device, a list: now distributed: {cuda_devices: [...]}")
    model = _inside(config, "model")
    for key in ("regularizer", "initializer"):
        if isinstance(model.get(key), list):
            found.append(f"model.{key}, a list: now {{regexes: [...]}}")
    embedder = model.get("text_field_embedder")
    if isinstance(embedder, dict) and not _KEYS_OF_2 & embedder.keys():
        found.append("model.text_field_embedder: now {token_embedders: {...}}")
    for part in ("data_loader", "validation_data_loader"):
        # In AllenNLP 0.9, each sorting key was a list: the name of a field, and a padding key.
        keys = _inside(config, part, "batch_sampler").get("sorting_keys")
        if isinstance(keys, list) and any(isinstance(key, list) for key in keys):
            found.append(f"{part}.batch_sampler.sorting_keys, lists: now names of fields")
    if found:
        raise ConfigurationError(
            f"the config has keys of AllenNLP 0.9: {'; '.join(found)}. See {PAGE}"
        )


def _inside(config: Any, *names: str) -> dict[str, Any]:
    """Return the dictionary under the nested keys `names`, or an empty one if there is none."""
    for name in names:
        config = config.get(name) if isinstance(config, dict) else None
    return config if isinstance(config, dict) else {}
