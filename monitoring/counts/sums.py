"""The rows of many brokers summed by window and topic, in SQL: `features.windows` for Spark.

Everything is partitioned by topic once, so that repeated rows, brokers, clusters and topics are grouped without
moving a row again.
"""

from __future__ import annotations

from typing import Any, get_type_hints

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # its usual name
from pyspark.sql.types import ArrayType, DataType, DoubleType, LongType, StringType, StructField, StructType

from monitoring.counts.features import SITES
from saps.statistics import REST, Row

_KINDS: dict[Any, DataType] = {
    str: StringType(),
    int: LongType(),
    float: DoubleType(),
    list[int]: ArrayType(LongType()),
}
ROWS = StructType([StructField(name, _KINDS[kind]) for name, kind in get_type_hints(Row).items()])
"""The brokers' rows (`saps.statistics.Row`)."""


def window_of(length: int) -> Column:
    """`features.window_of` of a row."""
    middle = F.col("start") + (F.col("seconds") * 500).cast("long")
    return (middle - F.pmod(middle, F.lit(length))).alias("window")


def end_of() -> Column:
    """When a row's interval ended, ms since 1970."""
    return F.col("start") + (F.col("seconds") * 1000).cast("long")


def windows(rows: DataFrame, length: int) -> DataFrame:
    """The windows of `length` ms in which these rows count and something was published, as `features.Window`."""
    partitions = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 4)
    once = (
        rows.where(F.col("topic") != REST)
        .drop("latency")
        .repartition(partitions, "topic")
        .dropDuplicates(["topic", "broker", "incarnation", "start", "cluster"])  # all text: so nothing is sorted
    )
    total = [F.sum(name).alias(name) for name in ("messages", "bytes", "copies", "by_tree", "joins", "leaves", "reach")]
    brokers = (
        once.withColumn("reach", F.col("messages") * F.col("brokers"))
        .withColumn("window", window_of(length))
        .groupBy("topic", "window", "cluster", "broker")
        .agg(
            *total,
            F.max("priority").alias("priority"),
            F.max((F.col("subscribers") > 0).cast("long")).alias("member"),
            F.max((F.col("messages") > 0).cast("long")).alias("sender"),
        )
    )
    clusters = brokers.groupBy("topic", "window", "cluster").agg(
        *total,
        F.max("priority").alias("priority"),
        F.sum("member").alias("members"),
        F.sum("sender").alias("senders"),
        F.sum(F.col("sender") * (1 - F.col("member"))).alias("only_send"),
    )
    wanting = F.sum((F.col("members") > 0).cast("long"))
    inside = F.sum(F.when(F.col("members") > 0, F.col("messages")).otherwise(0))
    site = F.when((F.col("members") > 0) | (F.col("senders") > 0), F.concat_ws(":", "cluster", "members", "only_send"))
    topics = clusters.groupBy("topic", "window").agg(
        *total,
        F.max("priority").alias("priority"),
        F.sum("members").alias("members"),
        F.sum("senders").alias("senders"),
        wanting.alias("wanting"),
        inside.alias("inside"),
        F.array_join(F.array_sort(F.collect_list(site)), SITES).alias("sites"),
    )
    outside = F.col("messages") - F.col("inside")
    up = F.when(F.col("wanting") == 0, 0).when(F.col("wanting") == 1, outside).otherwise(F.col("messages"))
    far = F.col("wanting") * F.col("messages") - F.col("inside")
    return topics.where(F.col("messages") > 0).select(
        "topic",
        F.col("window").alias("start"),
        "messages",
        "bytes",
        F.when(far > 0, F.col("copies")).otherwise(0).alias("copies"),
        "by_tree",
        up.cast("long").alias("up"),
        far.alias("far"),
        "reach",
        "joins",
        "leaves",
        "senders",
        "members",
        "priority",
        "sites",
    )
