-- A row for each commit of a plan, the newest first: who, when, and what became of the changes.
WITH last_words AS (
    SELECT
        plan_id,
        attempt,
        arg_max(outcome, (outcome <> 'pending', committed_at)) AS outcome
    FROM commits
    WHERE topic IS NOT NULL
    GROUP BY plan_id, attempt, wave, topic, partition, action
),
outcomes AS (
    SELECT
        plan_id,
        attempt,
        count(*) FILTER (outcome = 'applied') AS applied,
        count(*) FILTER (outcome = 'stale') AS stale,
        count(*) FILTER (outcome = 'fenced') AS fenced,
        count(*) FILTER (outcome = 'failed') AS failed,
        count(*) FILTER (outcome = 'unknown') AS unknown,
        count(*) FILTER (outcome = 'skipped') AS skipped,
        count(*) FILTER (outcome = 'pending') AS pending
    FROM last_words GROUP BY ALL
),
whys AS (
    SELECT plan_id, attempt, arg_max(message, (outcome <> 'applied', committed_at)) AS message
    FROM commits WHERE message <> '' AND outcome <> 'pending' GROUP BY ALL
),
spans AS (
    SELECT plan_id, attempt, max(who) AS who, min(committed_at) AS began_at, max(committed_at) AS ended_at
    FROM commits GROUP BY ALL
)
SELECT
    plan_id,
    attempt,
    who,
    began_at,
    ended_at,
    coalesce(applied, 0) AS applied,
    coalesce(stale, 0) AS stale,                    -- the cluster had changed: not written
    coalesce(fenced, 0) AS fenced,                  -- another controller took over: not written
    coalesce(failed, 0) AS failed,
    coalesce(unknown, 0) AS unknown,                -- the answer was lost
    coalesce(skipped, 0) AS skipped,
    coalesce(pending, 0) AS pending,                -- written down before, and nothing after: it was killed
    message                                         -- the last one, of what was not applied first
FROM spans
LEFT JOIN outcomes USING (plan_id, attempt)
LEFT JOIN whys USING (plan_id, attempt)
ORDER BY began_at DESC, plan_id, attempt
