"""What to compare, from the command line or a TOML file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import gossamer
from gossamer._suggest import unknown_name
from gossamer.cli.flags import setting, with_absolute_paths
from gossamer.compress import names as compressors
from gossamer.runs.config import Config
from gossamer.topology import names as topologies


def configs_of(
    runs: list[str], file: Path | None, settings: dict[str, Any], *, simulated: bool
) -> dict[str, Config]:
    """Return the settings of every run, by its name: the common ones and its own."""
    described = {text: _of_text(text) for text in runs}
    if file is not None:
        common, more = _of_file(file)
        if "steps" in settings or "epochs" in settings:  # a flag takes precedence over the file
            common = {k: v for k, v in common.items() if k not in ("steps", "epochs")}
        settings = common | settings
        described |= more
    if not described:
        raise ValueError('nothing to compare; say for example: gossamer compare "choco sign" dpsgd')
    merged = {name: with_absolute_paths(_merged(settings, own)) for name, own in described.items()}
    return {name: Config(**own, simulated=simulated) for name, own in merged.items()}


def _merged(common: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return a run's settings; common ones are dropped where they do not fit."""
    both = common | own
    if "compressor" not in own and not gossamer.algorithms.needs_compressor(own["algorithm"]):
        both.pop("compressor", None)
    if "steps" in own or "epochs" in own:
        both = {k: v for k, v in both.items() if k not in ("steps", "epochs") or k in own}
    return both


def _of_text(text: str) -> dict[str, Any]:
    """Return the settings that "choco sign torus lr=0.05" describes."""
    words = text.split()
    if not words:
        raise ValueError('a run to compare is empty; say for example "choco sign"')
    own: dict[str, Any] = {"algorithm": words[0]}
    for word in words[1:]:
        name, sign, value = word.partition("=")
        if sign and ":" not in name:  # "split:*.bias=identity,*=sign" is a compressor
            key, parsed = setting(name, value)
            own[key] = parsed
        else:
            own[_kind_of(word)] = word
    return own


def _kind_of(word: str) -> str:
    """Return "compressor" or "topology", whichever the word names."""
    name = word.partition(":")[0].partition("@")[0]
    if compressors.spelt(name) in gossamer.compress.NAMES:
        return "compressor"
    if topologies.spelt(name) in gossamer.topology.NAMES:
        return "topology"
    raise unknown_name("compressor or topology", name, [*gossamer.compress.NAMES, *gossamer.topology.NAMES])


def _of_file(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the common settings and the runs of a TOML file.

    [defaults]
    task = "fashion"

    [[runs]]
    algorithm = "choco"
    compressor = "sign"
    lr = 0.05
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    for key in content:
        if key not in ("defaults", "runs"):
            raise unknown_name(f"table in {path}", key, ("defaults", "runs"))
    tables, defaults = content.get("runs", []), content.get("defaults", {})
    if not isinstance(tables, list) or not isinstance(defaults, dict):
        raise ValueError(f"{path}: write [defaults] once, and [[runs]], with two brackets, for every run")
    runs: dict[str, dict[str, Any]] = {}
    for table in tables:
        name = str(table.get("name", ""))
        own = _checked({key: value for key, value in table.items() if key != "name"}, path)
        if "algorithm" not in own:
            raise ValueError(
                f"{path}: a run has no algorithm; there are {', '.join(gossamer.algorithms.NAMES)}"
            )
        words = (own["algorithm"], own.get("compressor"), own.get("topology"))
        name = name or " ".join(word for word in words if word)
        if name in runs:
            raise ValueError(f"{path}: two runs are called '{name}'; give them a name = \"...\"")
        runs[name] = own
    return _checked(defaults, path), runs


def _checked(table: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return settings as a run takes them."""
    for name, value in table.items():
        if isinstance(value, list | dict):
            raise ValueError(f"{path}: {name} = {value}: give one value")
    return dict(setting(name, str(value)) for name, value in table.items())
