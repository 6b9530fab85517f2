-- A row for each time that a broker led a partition: from which snapshot, and until which one found another leader.
WITH seen AS (
    SELECT
        topic,
        partition,
        snapshot_id,
        CASE WHEN NOT coalesce(vanished, partition_state = 'NonExistent', false) THEN leader END AS leader
    FROM partition_history
),
compared AS (
    SELECT
        *,
        lag(leader) OVER history AS leader_before,
        row_number() OVER history AS seen_before
    FROM seen
    WINDOW history AS (PARTITION BY topic, partition ORDER BY snapshot_id)
),
reigns AS (
    SELECT
        *,
        lead(snapshot_id) OVER (PARTITION BY topic, partition ORDER BY snapshot_id) AS until_snapshot
    FROM compared
    WHERE seen_before = 1 OR leader IS DISTINCT FROM leader_before
)
SELECT
    topic,
    partition,
    leader,                                         -- -1: nobody; null: not there, or without a state znode
    leader_before,                                  -- null also for the first one seen
    seen_before > 1 AS changed,                     -- false: the first one seen
    reigns.snapshot_id AS from_snapshot,
    began.taken_at AS from_at,                      -- null: that snapshot was dropped by vacuum
    until_snapshot,                                 -- null: still so
    ended.taken_at AS until_at
FROM reigns
LEFT JOIN snapshots AS began ON began.snapshot_id = reigns.snapshot_id
LEFT JOIN snapshots AS ended ON ended.snapshot_id = until_snapshot
ORDER BY from_snapshot DESC, topic, partition
