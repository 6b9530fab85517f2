-- A row for each snapshot and broker with preferred partitions: the leader imbalance.
SELECT
    snapshot_id,
    taken_at,
    broker_id,
    preferred_partitions,                           -- partitions whose preferred replica is on the broker
    not_led,                                        -- of these, the ones it does not lead
    ratio,                                          -- not_led / preferred_partitions
    exceeds,                                        -- ratio is above the threshold
    threshold
FROM imbalance JOIN snapshots USING (snapshot_id)
ORDER BY snapshot_id, broker_id
