"""
Packaging of elmo_plugin. What is named here is the core: ELMo without AllenNLP. The pinned set with
AllenNLP is requirements.txt; `make install` installs it.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from runpy import run_path

from setuptools import Extension, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
VERSION = run_path(str(ROOT / "elmo_plugin" / "__init__.py"))["__version__"]


class BuildWithConfigs(build_py):
    """Adds to a wheel what `elmo-plugin configs` writes; a checkout has the originals."""

    def run(self):
        """Builds the package, then copies."""
        super().run()
        if compiler() is None:
            say_pure_python("no C++ compiler was found")
        for source, target in self._copies():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)

    def get_outputs(self, include_bytecode=True):
        """Return the files that `run` writes."""
        return super().get_outputs(include_bytecode) + [str(to) for _, to in self._copies()]

    def _copies(self):
        if not self.editable_mode:
            command = run_path(str(ROOT / "elmo_plugin" / "commands" / "configs.py"))
            for name, source in command["sources"]():
                yield source, Path(self.build_lib, "elmo_plugin", command["IN_WHEEL"].name, name)


# --- the library of C++ kernels ------------------------------------------------------------------

KERNELS = Path("elmo_plugin", "bilm", "kernels")
# Python would take a name that ends in .so for a module.
LIBRARY, MANIFEST = "libelmo_kernels.so.1", "libelmo_kernels.json"
# The compiler must not fuse operations: results are bitwise identical on every processor.
FLAGS = (
    "-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
    "-fno-exceptions", "-fno-rtti", "-fopenmp-simd", "-fPIC",
)  # fmt: skip
WIDE = ("-march=x86-64-v4", "-mprefer-vector-width=512")
AMX = ("-mavx512bf16", "-mamx-tile", "-mamx-int8", "-mamx-bf16")
X86_VARIANTS = {
    "x86-64-v3": ("-march=x86-64-v3",),
    "x86-64-v3-vnni": ("-march=x86-64-v3", "-mavxvnni"),
    "x86-64-v4": WIDE,
    "x86-64-v4-vnni": (*WIDE, "-mavx512vnni"),
    "x86-64-v4-bf16": (*WIDE, "-mavx512vnni", "-mavx512bf16"),
    "x86-64-v4-amx": (*WIDE, "-mavx512vnni", *AMX),
}
DOT_PRODUCT = "-march=armv8.2-a+dotprod"
ARM_VARIANTS = {
    "portable": (),
    "aarch64-dotprod": (DOT_PRODUCT,),
    "aarch64-bf16": (DOT_PRODUCT + "+i8mm+bf16",),
}
VARIANTS = {
    "x86_64": X86_VARIANTS, "amd64": X86_VARIANTS, "aarch64": ARM_VARIANTS, "arm64": ARM_VARIANTS,
}  # fmt: skip


def compiler():
    """Return the C++ compiler that CXX names, or the first that is found; None if there is none."""
    names = (os.environ.get("CXX"), "c++", "g++", "clang++")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def say_pure_python(reason):
    """Print one line: the package is built without kernels, and why."""
    print(f"elmo_plugin: no C++ kernels, PyTorch's operators instead: {reason}", file=sys.stderr)


def say_dropped(variant, output):
    """Print one line: the library lacks a variant, and the compiler's first error."""
    lines = output.strip().splitlines() or ["the compiler printed nothing"]
    reason = next((line for line in lines if "error:" in line), lines[0])
    print(f"elmo_plugin: the kernels for {variant} are left out: {reason}", file=sys.stderr)


class BuildKernels(build_ext):
    """
    Compiles one library that holds the kernels once for every instruction set, and records its size
    and checksum. Without a compiler the package is pure Python.
    """

    def run(self):
        """Builds the library, or says in a line why not."""
        folder = ROOT / KERNELS if self.inplace else Path(self.build_lib, KERNELS)
        if self.inplace and is_current(folder):
            return
        for name in (MANIFEST, LIBRARY):
            (folder / name).unlink(missing_ok=True)
        try:
            self._build(compiler(), folder)
        except OSError as error:
            say_pure_python(error)

    def get_outputs(self):
        """Return the files that `run` writes."""
        paths = (Path(self.build_lib, KERNELS, name) for name in (LIBRARY, MANIFEST))
        return [str(path) for path in paths if path.is_file()]

    def get_output_mapping(self):
        """Return no mapping: an editable install copies nothing."""
        return {}

    def _build(self, program, folder):
        if program is None:
            raise OSError("no C++ compiler was found")
        source = ROOT / KERNELS
        (abi,) = re.findall(
            r"^ABI = (\d+)$", (source / "library.py").read_text("utf-8"), re.MULTILINE
        )
        with tempfile.TemporaryDirectory() as aside:

            def compiled(name, *flags):
                to = Path(aside, f"{name}.o")
                command = [program, *FLAGS, *flags, "-c", "-o", str(to)]
                done = subprocess.run(command, capture_output=True, text=True)
                return to if done.returncode == 0 else done.stderr

            def variant(item):
                name, flags = item
                define = f"-DVARIANT={name.replace('-', '_')}"
                return compiled(name, define, *flags, str(source / "kernels.cpp"))

            # The compiler's processor, which may not be this one.
            done = subprocess.run([program, "-dumpmachine"], capture_output=True, text=True)
            variants = VARIANTS.get(done.stdout.split("-")[0], {"portable": ()})
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                objects = dict(zip(variants, pool.map(variant, variants.items())))
            # An older compiler may not know the newest instructions.
            built = {name: one for name, one in objects.items() if isinstance(one, Path)}
            for name, one in objects.items() if built else ():
                if name not in built:
                    say_dropped(name, one)
            common = compiled("library", f"-DELMO_ABI={abi}", str(source / "library.cpp"))
            if not built or not isinstance(common, Path):
                raise OSError(
                    f"{program} failed: {common if built else next(iter(objects.values()))}"
                )
            made = Path(aside, LIBRARY)
            inputs = [str(one) for one in (common, *built.values())]
            link = [program, "-shared", "-o", str(made), *inputs, "-lm", "-lpthread", "-s"]
            if sys.platform == "linux":
                link += ["-static-libgcc", "-Wl,--as-needed"]
            done = subprocess.run(link, capture_output=True, text=True)
            if done.returncode:
                raise OSError(f"{program} failed: {done.stderr}")
            content = made.read_bytes()
            # Renamed into place: another process may have loaded the old one.
            folder.mkdir(parents=True, exist_ok=True)
            copy = folder / f"{LIBRARY}.{os.getpid()}"
            shutil.copyfile(made, copy)
            copy.replace(folder / LIBRARY)
        about = {
            "variants": list(built),
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "sources": sources_digest(),
        }
        (folder / MANIFEST).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def is_current(folder):
    """Return whether the library was built from these sources."""
    try:
        built = json.loads((folder / MANIFEST).read_text("utf-8"))
        content = (folder / LIBRARY).read_bytes()
    except (OSError, ValueError):
        return False
    found = built["sources"], built["sha256"]
    return found == (sources_digest(), hashlib.sha256(content).hexdigest())


def sources_digest():
    """Return a checksum of the library's sources and of how it is built."""
    paths = (*(ROOT / KERNELS).glob("*.cpp"), *(ROOT / KERNELS).glob("*.h"), Path(__file__))
    texts = [path.read_bytes() for path in sorted(paths)]
    return hashlib.sha256(b"".join(texts)).hexdigest()


class PlatformWheel(bdist_wheel):
    """A wheel with the library serves every Python, but one platform."""

    def get_tag(self):
        """`py3-none-PLATFORM`, or `py3-none-any` without a library."""
        built = Path(self.bdist_dir, KERNELS, LIBRARY).is_file()
        return "py3", "none", super().get_tag()[2] if built else "any"


setup(
    # Otherwise a clone named elmo_plugin hides the package from scripts beside it.
    options={"editable_wheel": {"mode": "compat"}},
    name="elmo_plugin",
    version=VERSION,
    description="ELMo for AllenNLP on a current Python and PyTorch: use it, and train it.",
    long_description=(ROOT / "README.md").read_text("utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    author="the elmo_plugin authors",
    keywords="ELMo biLM AllenNLP PyTorch NLP embeddings contextualized word representations",
    project_urls={"Paper": "https://arxiv.org/abs/1802.05365"},
    python_requires=">=3.11",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
        *(f"Programming Language :: Python :: {version}" for version in ("3.11", "3.12", "3.13")),
    ],
    packages=find_packages(include=["elmo_plugin", "elmo_plugin.*"]),
    package_data={"elmo_plugin": ["py.typed", "pretrained/*"]},
    # Not built as extensions are, see `BuildKernels`.
    ext_modules=[Extension("elmo_plugin.bilm.kernels.library", sources=[])] if compiler() else [],
    cmdclass={
        "build_py": BuildWithConfigs,
        "build_ext": BuildKernels,
        "bdist_wheel": PlatformWheel,
    },
    install_requires=["torch>=2", "numpy>=2", "h5py", "tqdm", "filelock>=3.30"],
    # AllenNLP can be no extra: its own pins (torch<1.13) no longer install. "With AllenNLP" in
    # docs/getting_started.md says how to install it.
    extras_require={
        "hub": ["cached-path"],  # released weights, by name or URL
        "jsonnet": ["jsonnet"],  # `elmo-plugin pretrain` with a .jsonnet
        "parquet": ["pyarrow>=21"],  # `elmo-plugin embed-corpus`
        "ray": ["ray>=2.50", "pyarrow>=21"],  # its `--engine ray`
        "plot": ["matplotlib"],  # `elmo-plugin layer-weights`
        "scikit-learn": ["scikit-learn"],  # elmo_plugin.scikit_learn
        "sentence-transformers": ["sentence-transformers>=5.5"],
        "transformers": ["transformers>=4.48"],  # elmo_plugin.transformers
        "onnx": ["onnx", "onnxscript"],  # `elmo-plugin export-onnx`
        "tensorflow": ["tensorflow"],  # `elmo-plugin convert-checkpoint`
        "spacy": ["spacy>=3.8"],  # the component `elmo`; `elmo-plugin sentences`
    },
    entry_points={
        "console_scripts": ["elmo-plugin = elmo_plugin.__main__:main"],
        # What spaCy's configs name without an import.
        "spacy_factories": ["elmo = elmo_plugin.spacy.component:make_elmo"],
        "spacy_architectures": ["elmo_plugin.ElmoMix.v1 = elmo_plugin.spacy.mix:elmo_mix"],
    },
)
