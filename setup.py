"""Packaging of elmo_plugin. The whole pinned set is requirements.txt; `make` installs it."""

from setuptools import find_packages, setup

setup(
    name="elmo_plugin",
    version="0.1.0",
    description="ELMo for AllenNLP on a current Python and PyTorch: use it, and train it.",
    license="Apache-2.0",
    author="the elmo_plugin authors",
    python_requires=">=3.11",
    packages=find_packages(include=["elmo_plugin", "elmo_plugin.*"]),
    package_data={"elmo_plugin": ["pretrained/*"]},
    # AllenNLP's own pins no longer install: see requirements.txt for the order that works.
    install_requires=[
        "allennlp==2.10.1",
        "torch>=2",
        "numpy>=2",
        "h5py",
        "jsonnet",
        "overrides",
        "spacy>=3.8",
        "tqdm",
        "matplotlib",
    ],
    entry_points={"console_scripts": ["elmo-plugin = elmo_plugin.__main__:main"]},
)
