"""Quantities: exact arithmetic, order, canonical form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchyard.api import quantity
from torchyard.api.quantity import Format, Quantity, QuantityError


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("1000m", "1"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("5.", "5."),
        ("+1", "+1"),
        ("1.0", "1"),
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.1Ki", "102400m"),
        ("1023Ki", "1023Ki"),
        ("1e3", "1e3"),
        ("1E3", "1E3"),
        ("100e-3", "100e-3"),
        ("1000", "1k"),
        ("1024", "1024"),
        ("1000k", "1M"),
        ("10E", "10E"),
        ("1Ei", "1Ei"),
        ("8Ei", "9223372036854775807"),
        ("0Ki", "0"),
        ("00", "0"),
        (" 1 ", "1"),
        (".", "0"),
        ("12345678901234567890", "12345678901234567890"),
        ("1e99", "1e99"),
        (1, "1"),
        (0.5, "500m"),
        (1000.0, "1k"),
        ("-1", "-1"),
        ("0.0000000001", "1n"),
    ],
)
def test_canonical_form_matches_kube_apiserver(text: str | float, spelled: str) -> None:
    assert quantity.canonical(text) == spelled


@pytest.mark.parametrize(
    ("text", "spelled"),
    [("0.0001", "1m"), ("1n", "1m"), ("999999999n", "1"), ("1500m", "1500m"), ("-1.0001", "-1001m")],
)
def test_a_resource_list_is_rounded_up_to_milli_units(text: str, spelled: str) -> None:
    assert str(quantity.parse(text).round_to_milli()) == spelled


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("abc", "quantities must match"),
        ("", "quantities must match"),
        ("1 Gi", "quantities must match"),
        ("1.2.3", "quantities must match"),
        ("1KiB", "quantities must match"),
        ("1ki", "unable to parse quantity's suffix"),
        ("--1", "unable to parse quantity's suffix"),
        ("1e", "unable to parse quantity's suffix"),
        ("1eK", "unable to parse quantity's suffix"),
        ("1e999999999", "unable to parse quantity's suffix"),
        ("9" * 5000, "unable to parse numeric part of quantity"),
    ],
)
def test_an_invalid_quantity_is_an_error_with_gos_message(text: str, complaint: str) -> None:
    with pytest.raises(QuantityError, match=complaint):
        quantity.parse(text)


def test_quantities_add_exactly_and_keep_the_left_format() -> None:
    total = quantity.parse("1Gi") + quantity.parse("512Mi")
    assert str(total) == "1536Mi"
    assert str(quantity.parse("0") + quantity.parse("1Gi")) == "1Gi"
    assert str(quantity.parse("100m") + quantity.parse("900m")) == "1"
    assert str(quantity.parse("2") - quantity.parse("500m")) == "1500m"
    assert str(quantity.parse("200m") * 5) == "1"


@pytest.mark.parametrize(
    ("text", "value", "milli"), [("1", 1, 1000), ("1001m", 2, 1001), ("-1001m", -2, -1001), ("1n", 1, 1)]
)
def test_values_are_rounded_away_from_zero(text: str, value: int, milli: int) -> None:
    amount = quantity.parse(text)
    assert (amount.value, amount.milli) == (value, milli)


def test_quantities_compare_by_amount() -> None:
    assert quantity.parse("1024Mi") == quantity.parse("1Gi")
    assert quantity.compare("1G", "1Gi") == -1
    assert quantity.compare("2", "2000m") == 0
    assert quantity.compare("1e3", "999") == 1
    assert sorted(map(quantity.parse, ["1Gi", "1k", "1"])) == [Quantity.of(1), Quantity.of(1000), Quantity.of(2**30)]


@given(st.integers(-(10**24), 10**24), st.sampled_from(Format))
def test_parsing_the_canonical_form_loses_nothing(nano: int, form: Format) -> None:
    amount = Quantity(nano, form)
    assert quantity.parse(str(amount)).nano == nano
    assert quantity.canonical(str(amount)) == str(amount)
