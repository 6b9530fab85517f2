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
    understood,
    coalesce(understood, true) AS judged,           -- whether its health is known
    judged AND partition_state = 'Offline' AS is_offline,
    judged AND coalesce(under_replicated, false) AS is_under_replicated,
    judged AND coalesce(under_min_isr, false) AS is_under_min_isr
FROM partitions
WHERE topic NOT IN (SELECT topic FROM topics WHERE deletion_requested)
