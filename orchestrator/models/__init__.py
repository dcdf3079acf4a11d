"""Models that are built here, so that nothing is downloaded: a tiny MLA model from a seed."""

from orchestrator.models.tiny import TinyMLAConfig, default_cache_dir, tiny_model, tiny_model_path

__all__ = ["TinyMLAConfig", "default_cache_dir", "tiny_model", "tiny_model_path"]
