-- A row for each partition whose topic is not queued for deletion; other partitions count as healthy.
SELECT
    topic,
    partition,
    partition_state,
    leader,
    replicas,
    isr,
    offline_replicas,
    under_replicated,
    under_min_isr,
    understood
FROM partitions
WHERE topic NOT IN (SELECT topic FROM topics WHERE deletion_requested)
