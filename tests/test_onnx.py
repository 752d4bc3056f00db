"""The exported biLM in onnxruntime, and what is refused; `make libraries` has onnxruntime."""

import copy
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy
import pytest
import torch

from elmo_plugin.__main__ import main
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.model.options import ElmoOptions
from tests.tiny_bilm import BATCHES, OPTIONS, random_bilm, write

REASON = "onnx and onnxruntime are not installed"
STATES = ("forward_hidden", "forward_cell", "backward_hidden", "backward_cell")
# None of them the exported shape, of seven sentences and three tokens.
SHAPES = [*BATCHES, [["one"]], [["w"] * 40, ["x"], ["y", "z"]], [["Überraschung", "a" * 80]]]


def bilm_in(state, options=OPTIONS):
    bilm = random_bilm(options).eval()
    bilm.state = state
    return bilm


def session_of(bilm, folder):
    """Export a biLM, and open the file in onnxruntime."""
    runtime = pytest.importorskip("onnxruntime", reason=REASON)
    from elmo_plugin.onnx import export_onnx

    export_onnx(bilm, folder / "bilm.onnx")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    return runtime.InferenceSession(str(folder / "bilm.onnx"), options)


@pytest.fixture(scope="module", params=["primed", "reset"])
def exported(request, tmp_path_factory):
    bilm = bilm_in(request.param)
    return bilm, session_of(bilm, tmp_path_factory.mktemp("onnx"))


def expected(bilm, ids):
    """Layers without boundaries, zero at padding."""
    with torch.no_grad():
        output = bilm(ids)
    mask = output["mask"][:, 2:, None]
    return torch.stack([layer[:, 1:-1] * mask for layer in output["activations"]], dim=1).numpy()


@pytest.mark.libraries
@pytest.mark.parametrize("batch", SHAPES, ids=range(len(SHAPES)))
def test_equal_in_any_shape(exported, batch):
    bilm, session = exported
    ids = batch_to_ids(batch)
    (layers,) = session.run(["layers"], {"character_ids": ids.numpy()})
    assert layers.shape == (len(batch), 3, ids.shape[1], 12)
    numpy.testing.assert_allclose(layers, expected(bilm, ids), atol=1e-5, rtol=0)


@pytest.mark.libraries
def test_states_go_in_and_come_out(exported):
    """Fed to the next call, they carry, as `"carry"` does."""
    _, session = exported
    carrying = random_bilm().eval()
    sizes = (6, 10, 6, 10)
    batches = [[["The", "cat"], ["x", "y", "z"]], [["sat", "."], ["of"]], [["a"], ["b", "c"]]]
    states = [numpy.zeros((2, 1, size), "float32") for size in sizes]
    for batch in batches:
        ids = batch_to_ids(batch)
        fed = dict(zip(STATES, states))
        layers, *states = session.run(None, {"character_ids": ids.numpy(), **fed})
        assert [one.shape for one in states] == [(2, 2, size) for size in sizes]
        numpy.testing.assert_allclose(layers, expected(carrying, ids), atol=1e-5, rtol=0)


@pytest.mark.libraries
def test_the_file_says_what_it_is(exported):
    bilm, session = exported
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["options"])["lstm"]["projection_dim"] == 6
    assert metadata["state"] == bilm.state
    assert [one.name for one in session.get_inputs()] == ["character_ids"]
    assert [one.name for one in session.get_overridable_initializers()] == list(STATES)
    assert [one.name for one in session.get_outputs()] == [
        "layers",
        *(f"end_{name}" for name in STATES),
    ]


# What options may leave out; and with the example batch of two sentences that there once was, the
# second's graph took two sentences alone.
LEFT_OUT = {
    "cell_clip": None,
    "projection_clip": None,
    "use_skip_connections": False,
    "num_highways": 0,
    "num_layers": 1,
    "filters": ((2, 6),),
    "activation": "tanh",
}
OF_TWO = ElmoOptions(64, 128, 2, 16, ((1, 32), (2, 32)), 2)


@pytest.mark.libraries
@pytest.mark.parametrize(
    ("options", "scale"),
    # Sums of ten times as many products, rounded as in the tiny one.
    [(replace(OPTIONS, **LEFT_OUT), 1.0), (OF_TWO, 0.3)],
    ids=["less", "of two"],
)
def test_other_sizes_in_any_shape(options, scale, tmp_path):
    bilm = bilm_in("primed", options)
    with torch.no_grad():
        for parameter in bilm.parameters():
            parameter *= scale
    session = session_of(bilm, tmp_path)
    assert session.get_inputs()[0].shape == ["batch_size", "num_tokens", 50]
    for batch in BATCHES:
        ids = batch_to_ids(batch)
        (layers,) = session.run(["layers"], {"character_ids": ids.numpy()})
        numpy.testing.assert_allclose(layers, expected(bilm, ids), atol=1e-5, rtol=0)


@pytest.mark.libraries
@pytest.mark.parametrize(("axis", "name"), [(0, "batch_size"), (1, "num_tokens")])
def test_a_fixed_size_is_an_error_and_no_file(tmp_path, monkeypatch, axis, name):
    helper = pytest.importorskip("onnx", reason=REASON).helper
    from elmo_plugin.onnx import export_onnx

    shape = ["batch_size", "num_tokens", 50]
    shape[axis] = 7
    ids = helper.make_tensor_value_info("character_ids", 7, shape)
    program = SimpleNamespace(model_proto=helper.make_model(helper.make_graph([], "g", [ids], [])))
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: program)
    bilm = bilm_in("reset")
    with pytest.raises(ValueError, match=rf"x\.onnx was not written: {name} of .* is 7 in the exp"):
        export_onnx(bilm, tmp_path / "x.onnx")
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_exists_or_a_wrong_name(tmp_path, error_line):
    (tmp_path / "x.onnx").touch()
    error = error_line("export-onnx", tmp_path / "x.onnx")
    assert "x.onnx exists, expected a new file; --force replaces it" in error
    error = error_line("export-onnx", tmp_path / "y.onnx", "--options-file", "orginal")
    assert "there is no file orginal" in error
    assert not (tmp_path / "y.onnx").exists()


@pytest.mark.parametrize(
    ("state", "change", "name", "error", "message"),
    [
        ("carry", copy.copy, "x.onnx", ValueError, "state is 'carry', expected 'primed' or"),
        ("reset", copy.copy, "none/x.onnx", FileNotFoundError, "there is no folder .*none to"),
        ("reset", lambda it: it.to("meta"), "x.onnx", ValueError, r"is on meta, .*call \.cpu\(\)"),
        ("reset", torch.nn.Module.bfloat16, "x.onnx", ValueError, "are torch.bfloat16, expected"),
    ],
)
def test_what_cannot_be_exported_is_said_before(state, change, name, error, message, tmp_path):
    from elmo_plugin.onnx import export_onnx

    with pytest.raises(error, match=message):
        export_onnx(change(bilm_in(state)), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.libraries
def test_an_export_that_failed_does_not_spoil_the_next(tmp_path):
    pytest.importorskip("onnxruntime", reason=REASON)
    from elmo_plugin.onnx import OnnxBilm, export_onnx

    bilm = bilm_in("reset")
    with pytest.MonkeyPatch.context() as patch:
        # A state of the wrong width is found in mid-graph.
        stock = OnnxBilm.start
        patch.setattr(OnnxBilm, "start", lambda self: [one[..., 1:] for one in stock(self)])
        with pytest.raises(Exception, match="Failed to export"):
            export_onnx(bilm, tmp_path / "x.onnx")
    export_onnx(bilm, tmp_path / "x.onnx")
    assert (tmp_path / "x.onnx").exists()


@pytest.mark.libraries
def test_the_command(tmp_path, capsys):
    pytest.importorskip("onnxruntime", reason=REASON)
    files = write(tmp_path)
    arguments = ["--options-file", files.options, "--weight-file", files.weights]
    main(["export-onnx", str(tmp_path / "x.onnx"), *arguments, "--state", "reset"])
    assert f"reset, exported to {tmp_path}/x.onnx" in capsys.readouterr().out
    assert (tmp_path / "x.onnx").stat().st_size > 10_000
