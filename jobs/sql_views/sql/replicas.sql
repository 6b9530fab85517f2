-- A row for each assigned replica, with its state in Kafka's replica state machine, as a new controller would find it.
-- A value that depends on a znode that cannot be decoded is 'not understood' or null.
WITH held AS (
    SELECT
        topic,
        partition,
        leader,
        isr,
        is_understood,
        is_deleting,
        unnest(replicas) AS broker_id,
        generate_subscripts(replicas, 1) AS place
    FROM partition_health
),

stopped AS (                                        -- answers to the StopReplica of a deletion
    SELECT topic, partition, broker_id, bool_or(error = 0) AS deleted
    FROM answers
    WHERE api = 'StopReplica' AND leader_epoch = -2
    GROUP BY ALL
),

failed AS (                                         -- log dirs that failed since the broker started
    SELECT topic, partition, broker_id, broker_epoch
    FROM answers
    WHERE api = 'LeaderAndIsr' AND error = 56
    GROUP BY ALL
),

seen AS (
    SELECT
        held.topic,
        held.partition,
        held.broker_id,
        place = 1 AS preferred,
        is_understood,
        if(is_understood, coalesce(leader = held.broker_id, false), NULL) AS leads,
        if(is_understood, coalesce(list_contains(isr, held.broker_id), false), NULL) AS in_sync,
        leader IS NULL AS is_new,
        is_deleting,
        CASE                                        -- null if the broker is registered and cannot be decoded
            WHEN brokers.broker_id IS NULL OR failed.broker_id IS NOT NULL THEN false
            WHEN brokers.understood THEN true
        END AS is_reachable,
        stopped.broker_id IS NOT NULL AS stop_sent,
        coalesce(deleted, false) AS deleted
    FROM held
    LEFT JOIN brokers USING (broker_id)
    LEFT JOIN stopped
        ON stopped.topic = held.topic AND stopped.partition = held.partition AND stopped.broker_id = held.broker_id
    LEFT JOIN failed
        ON failed.topic = held.topic AND failed.partition = held.partition AND failed.broker_id = held.broker_id
        AND failed.broker_epoch = brokers.broker_epoch
)

SELECT
    topic,
    partition,
    broker_id,
    CASE
        WHEN NOT is_understood THEN 'not understood'
        WHEN is_deleting AND deleted THEN 'ReplicaDeletionSuccessful'
        WHEN is_reachable IS NULL THEN 'not understood'
        WHEN is_deleting AND stop_sent AND is_reachable THEN 'ReplicaDeletionStarted'
        WHEN is_deleting AND NOT is_reachable THEN 'ReplicaDeletionIneligible'
        WHEN NOT is_reachable THEN 'OfflineReplica'
        WHEN is_new THEN 'NewReplica'
        ELSE 'OnlineReplica'
    END AS state,
    preferred,
    leads,
    in_sync
FROM seen
ORDER BY topic, partition, preferred DESC, broker_id
