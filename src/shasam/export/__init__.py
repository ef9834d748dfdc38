"""Trained models as files for other programs: ONNX, TorchScript, safetensors, a hub folder."""

from shasam.extras import need

need("torch", __name__)

from shasam.export.files import FORMATS, export

__all__ = ["FORMATS", "export"]
