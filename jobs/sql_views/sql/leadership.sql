-- A row for each broker that is registered or holds a replica: its leaders and replicas.
WITH led AS (
    SELECT leader AS broker_id, count(*) AS leaders FROM partitions WHERE leader >= 0 GROUP BY leader
),
first_in_order AS (
    SELECT replicas[1] AS broker_id, count(*) AS preferred
    FROM partition_health WHERE NOT is_deleting AND len(replicas) > 0 GROUP BY ALL
),
placed AS (
    SELECT unnest(replicas) AS broker_id FROM partitions
),
held AS (
    SELECT broker_id, count(*) AS replicas FROM placed GROUP BY broker_id
),
behind AS (
    SELECT unnest(missing) AS broker_id FROM partition_health WHERE judged
),
lagging AS (
    SELECT broker_id, count(*) AS out_of_sync FROM behind GROUP BY broker_id
),
everyone AS (
    SELECT broker_id FROM brokers UNION SELECT broker_id FROM held UNION SELECT broker_id FROM led
)
SELECT
    broker_id,
    coalesce(brokers.host, seen.host) AS host,      -- from the last registration if it is not live
    coalesce(brokers.rack, seen.rack) AS rack,      -- likewise; null if there is none or it is unknown
    brokers.broker_id IS NOT NULL AS registered,
    coalesce(leaders, 0) AS leaders,                -- partitions it leads
    coalesce(preferred, 0) AS preferred,            -- partitions not being deleted whose first replica it is
    coalesce(replicas, 0) AS replicas,              -- partitions it holds a replica of
    coalesce(out_of_sync, 0) AS out_of_sync         -- of these, the ones it is not in sync for, not being deleted
FROM everyone
LEFT JOIN brokers USING (broker_id)
LEFT JOIN brokers_last_seen AS seen ON seen.broker_id = everyone.broker_id AND brokers.broker_id IS NULL
LEFT JOIN led USING (broker_id)
LEFT JOIN first_in_order USING (broker_id)
LEFT JOIN held USING (broker_id)
LEFT JOIN lagging USING (broker_id)
ORDER BY broker_id
