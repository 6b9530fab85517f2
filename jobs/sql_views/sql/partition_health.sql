-- A row for each partition with its health, by which the other views and `surveyor status` count.
-- Partitions of a topic that is queued for deletion count as healthy.
WITH placed AS (
    SELECT *, topic IN (SELECT topic FROM topics WHERE deletion_requested) AS is_deleting FROM partitions
)
SELECT
    topic,
    partition,
    partition_state,
    leader,
    replicas,
    isr,
    adding_replicas,
    removing_replicas,
    offline_replicas,
    under_replicated,
    under_min_isr,
    understood,
    coalesce(understood, true) AS is_understood,
    is_deleting,
    is_understood AND NOT is_deleting AS judged,    -- whether its health is known and counts
    judged AND coalesce(partition_state = 'Offline', false) AS is_offline,
    judged AND coalesce(under_replicated, false) AS is_under_replicated,
    judged AND coalesce(under_min_isr, false) AS is_under_min_isr,
    coalesce(len(adding_replicas) > 0 OR len(removing_replicas) > 0, false) AS is_reassigned,
    NOT is_deleting AND coalesce(leader <> replicas[1], false) AS is_led_by_other,  -- not by its preferred replica
    list_filter(replicas, lambda broker: NOT list_contains(coalesce(isr, []), broker)) AS missing  -- from the ISR
FROM placed
