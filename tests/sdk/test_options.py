"""The keyword arguments of `run` and `train`."""

from __future__ import annotations

from typing import Any, cast

import pytest

from torchyard.api.errors import YardError
from torchyard.sdk.options import ScriptOptions, script_job

MEMORY_MESSAGE = 'memory: Invalid value: "4GB": is not a valid quantity; use 4G'


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": "4GB"}, MEMORY_MESSAGE),
        ({"cpu": "two"}, 'cpu: Invalid value: "two": is not a valid quantity; use for example 4 or 500m'),
        (
            {"cpu": "-1", "memory": "4GB"},
            f'cpu: Invalid value: "-1": must be greater than or equal to 0; {MEMORY_MESSAGE}',
        ),
    ],
)
def test_an_amount_that_is_not_a_quantity_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(YardError) as refused:
        script_job("a.py", (), cast(ScriptOptions, options))
    assert (str(refused.value), refused.value.code) == (message, "BadOption")


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"node": 4}, "node is not an option", "did you mean nodes?"),
        ({"learning_rate": 1}, "learning_rate is not an option", "the options are name, image"),
        ({"elastic": (4, 1)}, r"elastic=\(4, 1\)", "such as"),
        ({"elastic": (4,)}, r"elastic=\(4,\)", "such as"),
        ({"elastic": 4}, r"elastic=4", "such as"),
        ({"cpu": 2}, "cpu=2: it must be a string", 'such as "2"'),
        ({"env": {"LR": 1}}, "env has 'LR': 1; both must be strings", 'such as "LR": "1"'),
        ({"priority": "high"}, "priority high: .* no effect", "name the queue too"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(options: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(YardError, match=message) as refused:
        script_job("a.py", (), cast(ScriptOptions, options))
    assert refused.value.code == "BadOption"
    assert hint in refused.value.hint
