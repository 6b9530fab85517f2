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
    coalesce(under_min_isr, false) AS under_min_isr
FROM staying
WHERE (partition_state = 'Offline' OR under_replicated OR under_min_isr) AND coalesce(understood, true)
ORDER BY partition_state = 'Offline' DESC, coalesce(under_min_isr, false) DESC, len(missing) DESC, topic, partition
