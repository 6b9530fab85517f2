-- A row for each partition whose topic is not queued for deletion.
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
    understood,
    judged,                                         -- whether its health is known
    is_offline,
    is_under_replicated,
    is_under_min_isr
FROM partition_health
WHERE NOT is_deleting
