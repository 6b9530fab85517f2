-- A row for each partition that is offline, under-replicated or under its min ISR, the worst first.
SELECT
    topic,
    partition,
    partition_state,
    leader,                                         -- -1: none
    replicas,                                       -- the preferred one first
    isr,
    missing,                                        -- replicas that are not in the ISR
    offline_replicas,                               -- on brokers that are not registered
    is_under_min_isr AS under_min_isr
FROM partition_health
WHERE is_offline OR is_under_replicated OR is_under_min_isr
ORDER BY is_offline DESC, is_under_min_isr DESC, len(missing) DESC, topic, partition
