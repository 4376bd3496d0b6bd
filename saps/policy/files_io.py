"""Reads policy files from disk, and again on a reload; they are applied or refused as a whole."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from saps.config.knobs import SettingError
from saps.frontend.mqtt.access.faults import FileError
from saps.policy.model import Policy, StaleError, merged
from saps.policy.toml_file import parse_toml

logger = logging.getLogger(__name__)


class PolicyFiles:
    """The sum of several policy files. `policy` stays in force until `reload` finds another one."""

    def __init__(self, setting: str, files: Iterable[str | Path], obey: Callable[[Policy], None]) -> None:
        """`setting` is the setting that names the files, for error messages. `obey` is called with the policy now and
        whenever it changes. Raises `SettingError` with every fault of the first faulty file."""
        self._setting = setting
        self._obey = obey
        self.taken = True
        """False after a refused reload: the files on disk are not those in force."""
        self._read = {Path(file): _read(setting, Path(file)) for file in files}
        self.policy = merged(self._read.values())
        obey(self.policy)

    def reload(self) -> bool:
        """Read the files again. Returns False, logs the faults and keeps the old policy if a file is faulty, or has
        changed without a higher version."""
        try:
            fresh = {file: _read(self._setting, file, before) for file, before in self._read.items()}
        except SettingError as error:
            self.taken = False
            logger.error("%s", error)
            logger.error("policy unchanged, version %d stays in force", self.policy.version)
            return False
        policy = merged(fresh.values())
        if policy != self.policy:
            self._obey(policy)
        self._read, self.policy, self.taken = fresh, policy, True
        logger.info("policy of version %d, for %d topics and all below them", policy.version, len(policy.topics))
        return True


def _parse(text: str, suffix: str) -> Policy:
    """Raises `FileError`."""
    if suffix == ".xml":
        from saps.policy.xml_file import parse_xml  # here: a broker that starts needs none

        return parse_xml(text)
    return parse_toml(text)


def _read(setting: str, file: Path, before: Policy | None = None) -> Policy:
    try:
        data = file.read_bytes()
        text = data.decode()
        policy = _parse(text, file.suffix)
        return policy if before is None else policy.after(before)
    except OSError as error:
        raise SettingError(setting, f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingError(setting, f"{file}:{line}: not UTF-8") from None
    except FileError as error:
        faults = "; ".join(f"{file}:{fault.line}: {fault.reason}" for fault in error.faults)
        raise SettingError(setting, faults) from None
    except StaleError as error:
        raise SettingError(setting, f"{file}: {error}") from None
