-- A row for each snapshot and broker that was ever registered or a leader: partitions led, and presence.
WITH steps AS (
    SELECT leader AS broker_id, from_snapshot AS snapshot_id, count(*) AS step
    FROM leader_history WHERE leader >= 0 GROUP BY ALL
    UNION ALL
    SELECT leader, until_snapshot, -count(*)
    FROM leader_history WHERE leader >= 0 AND until_snapshot IS NOT NULL GROUP BY ALL
),
registrations AS (
    SELECT
        CAST(substr(subject, length('broker ') + 1) AS INTEGER) AS broker_id,
        snapshot_id,
        kind = 'BrokerJoined' AS joined
    FROM events WHERE kind IN ('BrokerJoined', 'BrokerFailed')
),
every_broker AS (
    SELECT broker_id FROM steps UNION SELECT broker_id FROM registrations UNION SELECT broker_id FROM brokers
),
led AS (
    SELECT
        snapshots.snapshot_id,
        snapshots.taken_at,
        every_broker.broker_id,
        CAST(coalesce(sum(step), 0) AS BIGINT) AS leaders,
        count(step) > 0 AS has_led
    FROM snapshots
    CROSS JOIN every_broker
    LEFT JOIN steps ON steps.broker_id = every_broker.broker_id AND steps.snapshot_id <= snapshots.snapshot_id
    GROUP BY ALL
),
known AS (
    SELECT
        snapshots.snapshot_id,
        registrations.broker_id,
        arg_max(joined, registrations.snapshot_id)
            FILTER (registrations.snapshot_id <= snapshots.snapshot_id) AS last_joined,
        arg_min(joined, registrations.snapshot_id)
            FILTER (registrations.snapshot_id > snapshots.snapshot_id) AS next_joined
    FROM snapshots CROSS JOIN registrations
    GROUP BY ALL
)
SELECT
    snapshot_id,
    taken_at,
    broker_id,
    leaders,
    CASE
        WHEN coalesce(last_joined, NOT next_joined, brokers.broker_id IS NOT NULL) THEN 'registered'
        WHEN last_joined IS NULL AND NOT has_led THEN 'not there'   -- not registered yet
        ELSE 'gone'                                 -- registered before
    END AS presence
FROM led
LEFT JOIN known USING (snapshot_id, broker_id)
LEFT JOIN brokers USING (broker_id)
ORDER BY snapshot_id, broker_id
