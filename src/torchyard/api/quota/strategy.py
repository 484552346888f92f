"""Strategies of ResourceQuota and LimitRange."""

from __future__ import annotations

from torchyard.api.compute_resources import canonical_list
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.quota import validation
from torchyard.api.status_subresource import StatusSubresourceStrategy
from torchyard.api.strategy import Strategy


class ResourceQuotaStrategy(StatusSubresourceStrategy):
    returns_deleted = True
    generation_fields = None

    def default(self, obj: Object) -> None:
        canonical_list((obj.setdefault("spec", {})).get("hard"))
        status = obj.get("status") or {}
        canonical_list(status.get("hard"))
        canonical_list(status.get("used"))

    def validate(self, obj: Object) -> list[FieldError]:
        return validation.validate_quota(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_quota_update(new, old)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return validation.validate_quota_status(new, old)


class LimitRangeStrategy(Strategy):
    validates_prefix_on_update = True
    create_on_update = True
    generation_fields = None
    empty_is_null = (("spec", "limits"),)

    def default(self, obj: Object) -> None:
        validation.default_limit_range(obj)

    def validate(self, obj: Object) -> list[FieldError]:
        return validation.validate_limit_range(obj)
