-- A row for each plan, the newest first: its size, main reason and commits.
WITH reasons AS (
    SELECT plan_id, reason, count(*) AS times FROM changes GROUP BY ALL
),
whys AS (
    SELECT plan_id, arg_max(reason, (times, reason)) AS why, count(*) AS reasons FROM reasons GROUP BY plan_id
),
touched AS (
    SELECT plan_id, count(DISTINCT topic) AS topics FROM changes GROUP BY plan_id
),
tasks AS (
    SELECT plan_id, count(*) AS operations FROM operations GROUP BY plan_id
),
tried AS (
    SELECT plan_id, max(attempt) AS attempts, max(committed_at) AS last_commit_at FROM commits GROUP BY plan_id
)
SELECT
    plan_id,
    coalesce(names, CASE WHEN name IS NULL THEN [] ELSE [name] END) AS names,
    kind,
    status,
    verified_at,                                    -- when `surveyor verify` found it complete, else null
    verified_at IS NOT NULL AND status NOT IN ('cancelled', 'rolled_back') AS complete,
    snapshot_id,
    created_at,
    plans.changes,
    coalesce(operations, 0) AS operations,          -- operations on topics
    rejected,                                       -- requested partitions without a change
    moves,                                          -- replicas that are copied to another broker
    coalesce(topics, 0) AS topics,                  -- topics with a change
    why,                                            -- the most frequent reason of its changes
    coalesce(reasons, 0) AS reasons,                -- number of different reasons
    coalesce(attempts, 0) AS attempts,              -- commits so far
    last_commit_at
FROM plans
LEFT JOIN whys USING (plan_id)
LEFT JOIN touched USING (plan_id)
LEFT JOIN tasks USING (plan_id)
LEFT JOIN tried USING (plan_id)
ORDER BY created_at DESC, plan_id
