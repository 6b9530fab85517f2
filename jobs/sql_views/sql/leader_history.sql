-- A row for each period in which a broker led a partition: its first snapshot, and the first with another leader.
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
    leader,                                         -- -1: none; null: no partition or no state znode
    leader_before,                                  -- null also for the first period
    seen_before > 1 AS changed,                     -- false for the first period
    reigns.snapshot_id AS from_snapshot,
    began.taken_at AS from_at,                      -- null if vacuum deleted that snapshot
    until_snapshot,                                 -- null if still current
    ended.taken_at AS until_at
FROM reigns
LEFT JOIN snapshots AS began ON began.snapshot_id = reigns.snapshot_id
LEFT JOIN snapshots AS ended ON ended.snapshot_id = until_snapshot
ORDER BY from_snapshot DESC, topic, partition
