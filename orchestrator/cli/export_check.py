"""Arguments of ``vllm serve``, parsed by the installed vLLM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from orchestrator.errors import ChunksmithError


def check_arguments(words: Sequence[str], env: Mapping[str, str]) -> str:
    """Have vLLM's own parser read what follows ``vllm serve``; return the version that did.

    Raises:
        ChunksmithError: vLLM refuses an argument, or does not know a variable of the environment.
    """
    import vllm
    from vllm import envs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    try:
        from vllm.entrypoints.launchers import cli_args
    except ImportError:
        # Where it lay before.
        from vllm.entrypoints.openai import cli_args

    class Parser(FlexibleArgumentParser):  # type: ignore[misc]
        def error(self, message: str) -> NoReturn:
            raise ChunksmithError(f"vLLM {vllm.__version__} refuses the arguments: {message}")

    try:
        cli_args.validate_parsed_serve_args(cli_args.make_arg_parser(Parser()).parse_args(list(words)))
    except (TypeError, ValueError) as error:
        raise ChunksmithError(f"vLLM {vllm.__version__} refuses the arguments: {error}") from error
    unknown = sorted(name for name in env if name.startswith("VLLM_") and name not in envs.environment_variables)
    if unknown:
        raise ChunksmithError(f"vLLM {vllm.__version__} does not know the environment variable {unknown[0]}")
    return str(vllm.__version__)
