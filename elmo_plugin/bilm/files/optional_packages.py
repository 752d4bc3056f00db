"""Import optional packages, which the extras in setup.py install."""

from importlib import import_module
from typing import Any

# Maps optional modules to advice on how to install them, shown if one is missing.
MISSING = {
    "matplotlib": "pip install 'elmo_plugin[plot]'",
    "pyarrow": "pip install 'elmo_plugin[parquet]'",
    "ray": "pip install 'elmo_plugin[ray]'",
    "safetensors": "pip install 'elmo_plugin[transformers]'",
    "spacy": "pip install 'elmo_plugin[spacy]'",
    "tensorflow": "pip install 'elmo_plugin[tensorflow]'",
    "_jsonnet": "pip install 'elmo_plugin[jsonnet]', or give the config as JSON",
    "onnx": "pip install 'elmo_plugin[onnx]'",
    "onnxscript": "pip install 'elmo_plugin[onnx]'",
    "allennlp": 'docs/getting_started.md, "With AllenNLP", says how to install it',
}


def import_optional(name: str) -> Any:
    """
    Import and return the module `name`. Raise a `ModuleNotFoundError` with the `pip install`
    command of the extra that installs it if it is missing.
    """
    package = name.partition(".")[0]
    try:
        return import_module(name)
    except ImportError as error:
        text = f"{package} is not installed; {MISSING[package]}"
        raise ModuleNotFoundError(text, name=package) from error
