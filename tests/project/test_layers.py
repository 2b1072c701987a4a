"""Settings in layers: who wins, and where each value comes from."""

import pytest

from windlass.core.errors import ConfigError
from windlass.project.layers import (
    DEFAULT_ORIGIN,
    SettingsLayer,
    layer_from_environ,
    layer_from_flags,
    layer_from_toml,
    merge_layers,
)

NOTHING = SettingsLayer({}, {})
FILE = """\
# the project
model = "openai:gpt-5"
max_usd = 1.5
policy = "rules.toml"

[agents.reviewer]
model = "anthropic:claude-sonnet-5"
tools = ["read-only"]
"""


def test_the_later_layer_wins_and_each_value_knows_its_place() -> None:
    system = layer_from_toml('model = "a:1"\nthinking = "fold"\nmax_steps = 5', "system", "/etc")
    project = layer_from_toml(FILE, "windlass.toml", "/p")
    environ = layer_from_environ({"WINDLASS_MAX_USD": "2", "WINDLASS_OTHER": "x"}, "/p")
    flags = layer_from_flags({"max_steps": "9"}, "/p")
    loaded = merge_layers([system, project], environ, flags)
    found = loaded.settings
    assert (found.model, found.thinking, str(found.max_usd), found.max_steps) == (
        "openai:gpt-5",
        "fold",
        "2",
        9,
    )
    assert {key: loaded.origins[key] for key in ("model", "thinking", "max_usd", "max_steps")} == {
        "model": "windlass.toml, line 2",
        "thinking": "system, line 2",
        "max_usd": "WINDLASS_MAX_USD",
        "max_steps": "--max-steps",
    }
    assert loaded.origins["timeout"] == DEFAULT_ORIGIN


def test_an_agent_goes_over_the_files_and_under_the_environment() -> None:
    project = layer_from_toml(FILE, "windlass.toml", "/p")
    loaded = merge_layers([project], NOTHING, NOTHING, agent="reviewer")
    assert loaded.settings.model == "anthropic:claude-sonnet-5"
    assert loaded.origins["model"] == "windlass.toml, line 7"
    environ = layer_from_environ({"WINDLASS_MODEL": "ollama:x", "WINDLASS_AGENT": "reviewer"}, "/p")
    over = merge_layers([project], environ, NOTHING).settings
    assert (over.model, over.tools, over.agent) == ("ollama:x", ("read-only",), "reviewer")


def test_an_agent_that_nobody_described_is_guessed() -> None:
    project = layer_from_toml(FILE, "windlass.toml", "/p")
    with pytest.raises(ConfigError, match=r"no agent 'reviwer'\. Did you mean reviewer"):
        merge_layers([project], NOTHING, NOTHING, agent="reviwer")
    with pytest.raises(ConfigError, match=r"write \[agents.NAME\]"):
        merge_layers([], NOTHING, layer_from_flags({"agent": "x"}, "/p"))


def test_a_path_is_meant_from_where_it_is_written() -> None:
    project = layer_from_toml(FILE, "windlass.toml", "/p/q")
    assert merge_layers([project], NOTHING, NOTHING).settings.policy == "/p/q/rules.toml"
    flags = layer_from_flags({"policy": "../r.toml"}, "/p/q")
    assert merge_layers([project], NOTHING, flags).settings.policy == "/p/r.toml"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('modle = "x"', "f, line 1: 'modle' is not a setting. Did you mean model"),
        ("\n\nmax_steps = 0", "f, line 3: max_steps must be a whole number above zero"),
        ("[agents.a]\n\njournal = 'x'", "f, line 3: 'journal' is not a setting"),
        ("[agents.a]\ntool = 'x'", "f, line 2: 'tool' is not a setting. Did you mean tools"),
        ("agents = 3", "f, line 1: agents must be a table"),
        ("[agents]\na = 3", r"f, line 2: agents.a must be a table: write \[agents.a\]"),
        ("model = ", "f is not valid TOML: Invalid value"),
        ("[limits]\nsteps = 3", "f, line 1: 'limits' is not a setting"),
        ('permission_mode = "aks"', "f, line 1: permission_mode must be one of .* mean ask"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_line(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        layer_from_toml(text, "f", "/")


def test_what_is_wrong_elsewhere_is_said_with_its_name() -> None:
    with pytest.raises(ConfigError, match="WINDLASS_TIMEOUT=soon: it must be a time"):
        layer_from_environ({"WINDLASS_TIMEOUT": "soon"}, "/")
    with pytest.raises(ConfigError, match="--max-usd=-1: it must be US dollars"):
        layer_from_flags({"max_usd": "-1"}, "/")
