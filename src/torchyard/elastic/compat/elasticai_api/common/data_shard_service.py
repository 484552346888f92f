"""`DataShardService`, `RecordIndexService` and the older name of their factory."""

from torchyard.elastic.elasticai.services import DataShardService, RecordIndexService, Shard

build_data_shard_service = DataShardService

__all__ = ["DataShardService", "RecordIndexService", "Shard", "build_data_shard_service"]
