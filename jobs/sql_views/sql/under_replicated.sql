-- A row for each partition that is offline, under-replicated or under its min ISR, the worst first.
SELECT
    topic,
    partition,
    partition_state,
    leader,                                         -- -1: none
    replicas,                                       -- the preferred one first
    isr,
    list_filter(replicas, lambda broker: NOT list_contains(coalesce(isr, []), broker)) AS missing,
    offline_replicas,                               -- on brokers that are not registered
    is_under_min_isr AS under_min_isr
FROM staying
WHERE is_offline OR is_under_replicated OR is_under_min_isr
ORDER BY is_offline DESC, is_under_min_isr DESC, len(missing) DESC, topic, partition
