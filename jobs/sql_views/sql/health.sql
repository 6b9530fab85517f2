-- One row with the health of the cluster at the snapshot.
WITH counted AS (
    SELECT
        count(*) AS partitions,
        count(*) FILTER (is_offline) AS offline,
        count(*) FILTER (is_under_replicated) AS under_replicated,
        count(*) FILTER (is_under_min_isr) AS under_min_isr,
        count(*) FILTER (is_reassigned) AS reassigning,
        count(*) FILTER (is_led_by_other) AS not_led_by_preferred,
        count(*) FILTER (NOT is_understood) AS not_understood
    FROM partition_health
),
holding AS (
    SELECT unnest(replicas) AS broker_id FROM partitions
)
SELECT
    snapshot_id,
    taken_at,
    cluster_id,
    controller_id,                                  -- -1: none
    controller_epoch,
    (SELECT count(*) FROM brokers) AS brokers,      -- registered brokers
    (SELECT count(DISTINCT broker_id) FROM holding WHERE broker_id NOT IN (SELECT broker_id FROM brokers))
        AS brokers_gone,                            -- brokers with replicas that are not registered
    (SELECT count(DISTINCT rack) FROM brokers) AS racks,
    (SELECT count(*) FROM topics) AS topics,
    (SELECT count(*) FROM topics WHERE deletion_requested) AS deleting_topics,  -- their partitions count as healthy
    counted.partitions,
    offline,                                        -- partitions without a live leader
    under_replicated,                               -- partitions with a replica that is not in the ISR
    under_min_isr,                                  -- partitions whose ISR is smaller than min.insync.replicas
    reassigning,                                    -- partitions whose replicas are being moved
    not_led_by_preferred,                           -- partitions not led by their first replica
    not_understood,                                 -- partitions that cannot be decoded
    quarantined,                                    -- znodes, or in KRaft responses, that cannot be decoded
    migration                                       -- the sign of a KRaft migration, or null
FROM snapshots CROSS JOIN counted
ORDER BY snapshot_id DESC
LIMIT 1
