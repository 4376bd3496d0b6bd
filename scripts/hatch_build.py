"""Compiled modules in a wheel: for hatchling, where HATCH_BUILD_HOOKS_ENABLE asks for them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledModules(BuildHookInterface[BuilderConfig]):
    """Compiles into a folder of its own, from which the wheel takes it. An editable installation gets it in place."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Ends the build if it cannot be compiled: it was asked for."""
        in_place = version == "editable"
        self._folder = tempfile.TemporaryDirectory()
        made = Path(self._folder.name)
        into = self.root if in_place else made
        command = [sys.executable, str(Path(self.root, "scripts", "compile_hot.py")), "--into", str(into)]
        if status := subprocess.run(command, check=False).returncode:
            sys.exit(status)
        if not in_place:
            found = [path for path in made.rglob("*") if path.is_file()]
            build_data["force_include"] |= {str(path): path.relative_to(made).as_posix() for path in found}
            build_data.update(pure_python=False, infer_tag=True)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel is written."""
        self._folder.cleanup()
