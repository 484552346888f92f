"""The keyword arguments of `run` and `train`."""

from __future__ import annotations

from typing import Any, cast

import pytest

from torchyard.api.errors import YardError
from torchyard.sdk.options import ScriptOptions, script_job


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"node": 4}, "node is not an option", "did you mean nodes?"),
        ({"learning_rate": 1}, "learning_rate is not an option", "the options are name, image"),
        ({"elastic": (4, 1)}, r"elastic=\(4, 1\)", "such as"),
        ({"elastic": (4,)}, r"elastic=\(4,\)", "such as"),
        ({"priority": "high"}, "priority high: .* no effect", "name the queue too"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(options: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(YardError, match=message) as refused:
        script_job("a.py", (), cast(ScriptOptions, options))
    assert refused.value.code == "BadOption"
    assert hint in refused.value.hint
