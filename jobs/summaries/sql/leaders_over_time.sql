-- A row for each snapshot and broker that ever led: how many partitions it led then.
WITH steps AS (
    SELECT leader AS broker_id, from_snapshot AS snapshot_id, count(*) AS step
    FROM leader_history WHERE leader >= 0 GROUP BY ALL
    UNION ALL
    SELECT leader, until_snapshot, -count(*)
    FROM leader_history WHERE leader >= 0 AND until_snapshot IS NOT NULL GROUP BY ALL
),
ever_led AS (
    SELECT DISTINCT broker_id FROM steps
)
SELECT
    snapshots.snapshot_id,
    snapshots.taken_at,
    ever_led.broker_id,
    CAST(coalesce(sum(step), 0) AS BIGINT) AS leaders
FROM snapshots
CROSS JOIN ever_led
LEFT JOIN steps ON steps.broker_id = ever_led.broker_id AND steps.snapshot_id <= snapshots.snapshot_id
GROUP BY ALL
ORDER BY snapshots.snapshot_id, ever_led.broker_id
