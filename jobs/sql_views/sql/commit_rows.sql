-- Each row of a plan once per attempt with its last outcome, or pending if none was recorded.
WITH attempts AS (
    SELECT
        plan_id,
        attempt,
        CASE
            WHEN bool_or(action IN ('cancel', 'restore_order')) THEN 'cancel'
            WHEN bool_or(action = 'roll_back') THEN 'roll_back'
            WHEN bool_and(action IN ('throttle', 'lift_throttle')) THEN 'throttle'
            ELSE 'commit'
        END AS kind
    FROM commits GROUP BY ALL
),
ranked AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY plan_id, attempt, wave, topic, partition, action
            ORDER BY outcome = 'pending', committed_at DESC
        ) AS place
    FROM commits
),
steps AS (
    SELECT plan_id, attempt, action, message FROM commits WHERE topic IS NULL AND outcome <> 'pending'
)
SELECT
    cluster,
    plan_id,
    attempt,
    kind,                                           -- commit, cancel, roll_back (everything already restored) or throttle
    wave,
    topic,
    partition,
    action,
    outcome,
    state_version_after,
    committed_at,
    who,
    message,
    controller_epoch,
    run
FROM ranked
JOIN attempts USING (plan_id, attempt)
WHERE if(
    topic IS NOT NULL,
    place = 1,
    outcome <> 'pending' OR NOT EXISTS (             -- the message of a step's outcome starts with its intent's
        FROM steps
        WHERE (steps.plan_id, steps.attempt, steps.action) = (ranked.plan_id, ranked.attempt, ranked.action)
            AND starts_with(steps.message, ranked.message)
    )
)
ORDER BY plan_id, attempt, committed_at, wave, topic, partition, action
