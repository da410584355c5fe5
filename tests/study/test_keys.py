"""Every key says what it is for, has one line of documentation, and one place for its default."""

from __future__ import annotations

import pytest

from lm_experiments.errors import InputError
from lm_experiments.fields import Use, documentation_of, fields_of
from lm_experiments.registry import AXES, GROUPS, component, names
from lm_experiments.rundir.study import Study, Tuning
from lm_experiments.study.choices import base_values
from lm_experiments.study.command_config import CommandConfig, command_config
from lm_experiments.study.keys import SHORT, Key, all_keys, flat, study_keys, use_of
from lm_experiments.training.config import RunConfig
from lm_experiments.training.schedules import Schedule

KEYS = [*all_keys(), *study_keys()]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: f"{key.name} {key.choice}".strip())
def test_every_key_is_documented(key: Key) -> None:
    assert key.field.summary, f"{key.name} has no entry in the Attributes of its class"
    assert "\n" not in key.field.documentation


def test_no_documentation_is_of_a_field_that_is_gone() -> None:
    classes = [RunConfig, CommandConfig, Study, Tuning]
    classes += [component(group, name).options for group in GROUPS for name in names(group)]
    for cls in classes:
        # A base class may document an option that only some of its subclasses have.
        shared = {"min_ratio", "decay_fraction"} if issubclass(cls, Schedule) else set()
        gone = documentation_of(cls).keys() - {field.name for field in fields_of(cls)} - shared
        assert not gone, f"{cls.__name__} documents {gone}"


def test_all_keys_of_the_base_configuration_are_known() -> None:
    known = {key.name for key in all_keys()} | set(SHORT)
    assert set(flat(base_values())) == {
        name for name in known if name.removeprefix("model.").split(".")[0] not in GROUPS
    }


@pytest.mark.parametrize(
    ("key", "use"),
    [
        ("seed", Use.SEED),
        ("control", Use.RESULT),
        ("model.d_model", Use.RESULT),
        ("model.d_ff", Use.SOURCE),
        ("match", Use.SOURCE),
        ("model.vocab_size", Use.DERIVED),
        ("model.norm", Use.RESULT),
        ("model.norm.eps", Use.RESULT),
        ("norm", Use.RESULT),
        ("data.path", Use.SOURCE),
        ("tokenizer.path", Use.SOURCE),
        ("optimizer.lr", Use.RESULT),
        ("optimizer.decay", Use.LATER),
        ("trainer.max_steps", Use.RESULT),
        ("trainer.threads", Use.PLACE),
        ("logger", Use.PLACE),
        ("logger.project", Use.PLACE),
        ("compile", Use.PLACE),
        ("arm", Use.NAME),
        ("plan", Use.COMMAND),
        ("resources.gpus", Use.COMMAND),
        ("hydra/launcher", Use.COMMAND),
        ("hydra.launcher.partition", Use.COMMAND),
        ("somebody.elses", Use.RESULT),
    ],
)
def test_what_a_key_is_for(key: str, use: Use) -> None:
    assert use_of(key) is use


def test_every_axis_is_a_field_of_the_model() -> None:
    assert all(key.name.startswith("model.") for key in KEYS if key.choice.split("=")[0] in AXES)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"plan": "yes"}, "plan='yes' is not true or false."),
        ({"retries": "x"}, "retries='x' is not a whole number."),
        ({"retries": 1.5}, "retries=1.5 is not a whole number."),
        ({"retries": -1}, "retries=-1 must be 0 or more."),
        ({"on_failure": "wait"}, "on_failure=wait is not known; it can be continue or stop."),
        ({"resources": {"gpu": 1}}, "resources.gpu is not a key; did you mean resources.gpus?"),
        ({"ray": {"address": 5.5}}, "ray.address=5.5 is not a word"),
        ({"study": "cs336"}, "study='cs336' is not a section"),
    ],
)
def test_a_bad_value_of_the_command_is_one_sentence(
    values: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        command_config(values)
    assert str(caught.value).startswith(message)


def test_the_command_takes_its_own_keys_from_a_whole_configuration() -> None:
    config = command_config({"seed": 1, "plan": True, "resources": {"gpus": 1, "cpus": "auto"}})
    assert config.plan and config.retries == 0
    assert (config.resources.gpus, config.resources.cpus) == (1.0, "auto")
    assert config.ray.address is None
