"""
Packaging of elmo_plugin. What is named here is the core: ELMo without AllenNLP. The pinned set with
AllenNLP is requirements.txt; `make` installs it.
"""

import shutil
from pathlib import Path
from runpy import run_path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
VERSION = run_path(str(ROOT / "elmo_plugin" / "__init__.py"))["__version__"]


class BuildWithConfigs(build_py):
    """A wheel carries copies of what `elmo-plugin configs` writes; a checkout has the originals."""

    def run(self):
        """Builds the package, then copies."""
        super().run()
        for source, target in self._copies():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)

    def get_outputs(self, include_bytecode=True):
        """What `run` writes."""
        return super().get_outputs(include_bytecode) + [str(to) for _, to in self._copies()]

    def _copies(self):
        if not self.editable_mode:
            command = run_path(str(ROOT / "elmo_plugin" / "commands" / "configs.py"))
            for name, source in command["sources"]():
                yield source, Path(self.build_lib, "elmo_plugin", command["IN_WHEEL"].name, name)


setup(
    name="elmo_plugin",
    version=VERSION,
    description="ELMo for AllenNLP on a current Python and PyTorch: use it, and train it.",
    long_description=(ROOT / "README.md").read_text("utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    author="the elmo_plugin authors",
    keywords="ELMo AllenNLP biLM contextualized word representations",
    python_requires=">=3.11",
    classifiers=[
        f"Programming Language :: Python :: {version}" for version in ("3.11", "3.12", "3.13")
    ],
    packages=find_packages(include=["elmo_plugin", "elmo_plugin.*"]),
    package_data={
        "elmo_plugin": ["py.typed", "pretrained/*", "bilm/kernels/*.cpp", "bilm/kernels/*.h"]
    },
    cmdclass={"build_py": BuildWithConfigs},
    install_requires=["torch>=2", "numpy>=2", "h5py", "tqdm"],
    # AllenNLP can be no extra: its own pins (torch<1.13) no longer install. README.md, "Install",
    # says how it goes on top.
    extras_require={
        "hub": ["cached-path"],  # released weights, by name or URL
        "jsonnet": ["jsonnet"],  # `elmo-plugin pretrain` with a .jsonnet
        "parquet": ["pyarrow>=21"],  # `elmo-plugin embed-corpus`
        "ray": ["ray>=2.50", "pyarrow>=21"],  # its `--engine ray`
        "plot": ["matplotlib"],  # `elmo-plugin layer-weights`
        "scikit-learn": ["scikit-learn"],  # elmo_plugin.scikit_learn
        "sentence-transformers": ["sentence-transformers>=5.5"],
        "onnx": ["onnx", "onnxscript"],  # `elmo-plugin export-onnx`
        "spacy": ["spacy>=3.8"],  # the component `elmo`; `elmo-plugin sentences`
    },
    entry_points={
        "console_scripts": ["elmo-plugin = elmo_plugin.__main__:main"],
        # What spaCy's configs name without an import.
        "spacy_factories": ["elmo = elmo_plugin.spacy.component:make_elmo"],
        "spacy_architectures": ["elmo_plugin.ElmoMix.v1 = elmo_plugin.spacy.mix:elmo_mix"],
    },
)
