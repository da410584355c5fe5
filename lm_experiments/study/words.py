"""The words of a command line, before Hydra reads them: what it would ignore is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from lm_experiments.errors import InputError
from lm_experiments.study.choices import choices, groups
from lm_experiments.study.hints import is_key, meant

# Groups of which nothing need be chosen.
OPTIONAL = ("arch", "study")
YAML = (".yaml", ".yml")
# Hydra's sweeper that trains one run after another, each where the losses so far suggest.
SEARCH = "hydra/sweeper=optuna"
_SWEEPER = r"hydra[./]sweeper"
# Keys of Hydra that nothing here reads, and what to type instead.
_UNREAD = {
    _SWEEPER: "values are swept by -m key=a,b; a search over one value, the same for every arm, is "
    "tune: in a study, for example 'study.tune={grid:[1e-3,3e-3,1e-2]}', and "
    f"{SEARCH} with -m searches for one run",
    r"hydra\.(run|sweep|output_subdir)": "a run's directory is named by what it holds; type "
    "runs_dir=... for the folder of all sweeps, and name=... for this one's in it",
    r"hydra\.job": "a command stays in the folder where it is typed; type runs_dir=... for the "
    "folder of all sweeps, and name=... for this one's in it",
}


def _loggers_apart(words: Sequence[str]) -> list[str]:
    """Return the words with ``logger=[A,B]`` as Hydra can compose it: ``logger=A``, and also B."""
    found = []
    for text in words:
        names = re.fullmatch(r"logger=\[([\w\s,]+)\]", text)
        first, *others = re.split(r"\s*,\s*", names[1].strip()) if names else [""]
        found += [f"logger={first}", f"logger.also=[{','.join(others)}]"] if names else [text]
    return found


def prepared_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command line as Hydra is to read them; InputError refuses one.

    Options such as ``-m`` may stand anywhere, a study may be a file, and its fields may be set.
    """
    options, rest = parted(words)
    # Hydra reads them in no other order.
    words = [*options, *_loggers_apart(rest)]
    _check_flags(words)
    check_words(_without_search(words))
    studies = [text for text in words if text.startswith("study=")]
    found = []
    for text in words:
        if text.startswith(("study.", "ladder=")):
            if not studies:
                raise InputError(f"{text} changes a study; choose one with study=NAME.")
            text = re.sub(r"^ladder=(?!null$)(\w+)$", r"ladder={by:\1}", text)
            text = re.sub(r"^ladder=", "study.ladder=", text)
            # Fields that its file leaves out have no place in the configuration yet, and Hydra
            # would merge a section into what is there.
            key, _, value = text.partition("=")
            found += [f"++{key}=null"] if value.startswith("{") else []
            text = f"++{text}"
        found.append(_study_file(text) if text in studies else text)
    return found


def _without_search(words: Sequence[str]) -> list[str]:
    """Return the words but those of a search by Optuna; InputError where it cannot be one."""
    if SEARCH not in words or not {"-m", "--multirun"} & set(words):
        return list(words)
    for text in words:
        key, _, value = text.partition("=")
        if key in ("plan", "study", "hydra/launcher") and value not in ("false", "null", "basic"):
            raise InputError(
                f"{text} does not go with {SEARCH}, which trains one run after another, each "
                "chosen by those before; leave one of them out."
            )
    return [text for text in words if not re.match(rf"{_SWEEPER}\b", text)]


def parted(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return Hydra's options with their values, and the other words."""
    takes_value = _hydra_flags()
    options: list[str] = []
    rest: list[str] = []
    follows = False
    for text in words:
        flag = text.split("=")[0]
        (options if follows or flag in takes_value else rest).append(text)
        follows = takes_value.get(text, False)
    return options, rest


def _hydra_flags() -> dict[str, bool]:
    """Return Hydra's options, and whether the next word is the value of one."""
    actions = get_args_parser()._actions
    return {flag: action.nargs is None for action in actions for flag in action.option_strings}


def check_words(words: Sequence[str]) -> None:
    """Refuse words that Hydra would take and nothing here would follow."""
    for text in words:
        key = text.partition("=")[0]
        for pattern, reason in _UNREAD.items():
            if re.match(rf"[+~]*{pattern}\b", key) and text != "hydra/sweeper=lm_experiments":
                raise InputError(f"{text} is not read: {reason}.")
        taken_out = key.startswith("~") and not key.startswith("~study.")
        if taken_out or (text == f"{key}=null" and key in groups() and key not in OPTIONAL):
            group, others = key.lstrip("~"), choices(key.lstrip("~"))
            if others:
                other = "none" if "none" in others else "..."
                instead = f"type {group}={other}; {group} can be {', '.join(others)}"
            else:
                instead = "give it another value, or leave it as it is"
            raise InputError(f"{text}: nothing can be taken out of a run; {instead}.")


def quoted(text: str) -> str:
    """Return the text as Hydra's command line reads it back."""
    return json.dumps(text, ensure_ascii=False)


def is_readable(override: str) -> bool:
    """Return whether Hydra's grammar takes an override as it stands."""
    try:
        OverridesParser.create().parse_override(override)
    except HydraException:
        return False
    return True


def with_quotes(override: str) -> str | None:
    """Return an override with quotes where its values need them; None where they do not help."""
    key, _, value = override.partition("=")
    parts = re.split(r"([\[\]{},])", value)
    needed = [p if p in "[]{}," or is_readable(f"x={p}") else quoted(p) for p in parts]
    forms = [f"{key}={form}" for form in ("".join(needed), quoted(value))]
    return next(filter(is_readable, forms), None) if value.rstrip(",") == value != "" else None


def _check_flags(words: Sequence[str]) -> None:
    """Refuse a value typed as a flag, or one that no file can hold, before Hydra reads it."""
    known = _hydra_flags()
    for text, following in zip(words, [*words, "..."][1:], strict=True):
        if text.encode(errors="replace").decode() != text:
            raise InputError(
                f"{text!a} is not UTF-8; rename the file or folder that it names, for "
                "example with convmv -f latin1 -t utf8."
            )
        flag, equals, value = text.partition("=")
        if text.startswith("--") and flag not in known:
            key, value = flag.lstrip("-"), value if equals else following
            instead = f"type {key}={value}" if is_key(key) else meant(key, value)
            raise InputError(
                f"{text} is not an option; values are typed without dashes and with =: {instead}"
            )


def _study_file(text: str) -> str:
    """Return ``study=FILE`` as a choice of Hydra's, whose file is read; a name as it is."""
    value = text.removeprefix("study=").strip("'\"")
    path = Path(value).expanduser()
    if "," in value or (path.suffix not in YAML and not re.search(r"[/\\]", value)):
        return text
    files = [there for there in (path, Path(f"{path}.yaml")) if there.is_file()]
    if not files:
        if value.startswith((".", "/", "~")):
            raise InputError(f"{text}: there is no such file; type study=NAME, or the file's path.")
        return text
    found = files[0].resolve()
    content = OmegaConf.load(found)
    if not isinstance(content, DictConfig):
        raise InputError(f"{found} is not a study, which has name:, baseline: and arms:.")
    group = f"study{found.parent.as_posix()}"
    ConfigStore.instance().store(found.with_suffix("").name, content, group, package="study")
    return f"study={quoted(found.with_suffix('').as_posix())}"
