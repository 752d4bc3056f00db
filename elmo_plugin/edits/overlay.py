"""Write an edited config: jsonnet that imports the original one, or a whole JSON file."""

import json
import os
import re
from pathlib import Path
from typing import Any

from allennlp.common import Params

from elmo_plugin.bilm.files.atomic_write import atomic_write
from elmo_plugin.edits import components
from elmo_plugin.edits.elmo_edits import Edit

UNDEFINED = re.compile(r"undefined external variable: (\w+)")


def evaluate(path: str | Path) -> tuple[dict[str, Any], dict[str, str]]:
    """
    Return an evaluated config, and what its `std.extVar` variables that are not set were taken for:
    their names, or 1 where the config needs a number.

    # Raises

    `FileNotFoundError`, `ValueError`
        If there is no such file, or it does not hold a config.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no config {path}, expected a JSON or jsonnet file")
    unset: dict[str, str] = {}
    while True:
        try:
            config = Params.from_file(path, ext_vars=unset).as_dict(quiet=True)
        except RuntimeError as error:
            name = UNDEFINED.search(str(error))
            numbers = [key for key, value in unset.items() if value != "1"]
            if name and name[1] not in unset:
                unset[name[1]] = name[1]
            elif numbers and ("parse" in str(error) or "not a" in str(error)):
                unset[numbers[-1]] = "1"
            else:
                raise ValueError(f"{path}: {str(error).strip()}") from error
            continue
        model = components.get(config, ("model",))
        if not isinstance(model, (dict, str)) or "dataset_reader" not in config:
            raise ValueError(
                f"{path} has no model or no dataset_reader, expected a training config"
            )
        return config, unset


def write(source: Path, output: Path, config: dict[str, Any], edits: list[Edit]) -> None:
    """
    Write the edited config of `source` to `output`. The written file evaluates to `config`.

    # Raises

    `ValueError`
        If a jsonnet config cannot be imported and edited: a function, an `assert` about a width.
    """
    with atomic_write(output) as temporary:
        if source.suffix == ".json":
            try:
                config = json.loads(source.read_text("utf-8"))  # keeps the order of keys
            except ValueError:  # comments or trailing commas, which jsonnet reads
                config = evaluate(source)[0]
            for edit in edits:
                config = components.replaced(config, edit.path, edit.new)
            temporary.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", "utf-8")
            return
        original = evaluate(source)[0]
        imported = os.path.relpath(source.resolve(), output.resolve().parent).replace(os.sep, "/")
        head = f"// {source.name} with ELMo\n(import {_json(imported)}) + "
        for relative in (True, False, False):
            temporary.write_text(f"{head}{_object(original, edits, 0, relative)}\n", "utf-8")
            try:
                found = evaluate(temporary)[0]
            except ValueError as error:
                reason = str(error.__cause__).splitlines()[0]
                raise ValueError(
                    f"{source} cannot be imported with these edits ({reason}), expected an object "
                    "without assertions about them; its value as JSON can be edited"
                ) from error
            if found == config:
                return
            if not relative:  # values that depend on edited ones (`self`, `$`) have followed them
                edits = [*edits, *_differences(found, config)]


def _differences(old: Any, new: Any, path: components.Path = ()) -> list[Edit]:
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() <= new.keys():
        return [one for key in new for one in _differences(old.get(key), new[key], (*path, key))]
    return [] if old == new else [Edit(path, old, new, "")]


def _object(original: Any, edits: list[Edit], depth: int, relative: bool) -> str:
    """Return a jsonnet object with the edits below a value, to be added to that value."""
    lines = []
    for key in dict.fromkeys(edit.path[depth] for edit in edits):
        inside = [edit for edit in edits if edit.path[depth] == key]
        lines.append(f"{_json(key)}{_value(original, key, inside, depth, relative)},")
    indent = "  " * (depth + 1)
    return "{\n" + "".join(f"{indent}{line}\n" for line in lines) + "  " * depth + "}"


def _value(original: Any, key: Any, edits: list[Edit], depth: int, relative: bool) -> str:
    old = components.get(original, (key,))
    if len(edits[0].path) == depth + 1:
        new = edits[0].new
        both = type(old) is int and type(new) is int
        return f"+: {new - old}" if both and relative else f": {_json(new)}"
    if isinstance(old, dict):
        return f"+: {_object(old, edits, depth + 1, relative)}"
    if isinstance(old, list) and all(isinstance(old[int(e.path[depth + 1])], dict) for e in edits):
        items = []
        for index in range(len(old)):
            item = f"super[{_json(key)}][{index}]"
            inside = [edit for edit in edits if edit.path[depth + 1] == index]
            if inside:
                item += f" + {_object(old[index], inside, depth + 2, relative)}"
            items.append(item)
        return f": [{', '.join(items)}]"
    new = old
    for edit in edits:
        new = components.replaced(new, edit.path[depth + 1 :], edit.new)
    return f": {_json(new)}"


def _json(value: Any) -> str:
    """Return a value as JSON on one line, which is jsonnet too."""
    return json.dumps(value, ensure_ascii=False)
