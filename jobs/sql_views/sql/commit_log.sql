-- A row for each commit of a plan and each cancellation, the newest first: author, time and outcomes of the changes.
WITH last_words AS (
    SELECT                                          -- a cancellation in two steps counts once
        plan_id,
        attempt,
        arg_max(outcome, (outcome = 'pending', outcome <> 'applied', committed_at)) AS outcome
    FROM commit_rows
    WHERE topic IS NOT NULL
    GROUP BY plan_id, attempt, wave, topic, partition, if(kind = 'commit', action, kind)
),
outcomes AS (
    SELECT
        plan_id,
        attempt,
        count(*) AS in_all,
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
    FROM commit_rows WHERE message <> '' AND outcome <> 'pending' GROUP BY ALL
),
spans AS (
    SELECT
        plan_id,
        attempt,
        any_value(kind) AS kind,
        arg_max(outcome, committed_at) AS last_outcome
    FROM commit_rows GROUP BY ALL
),
times AS (
    SELECT plan_id, attempt, max(who) AS who, min(committed_at) AS began_at, max(committed_at) AS ended_at
    FROM commits GROUP BY ALL
)
SELECT
    plan_id,
    attempt,
    spans.kind,                                     -- commit, cancel, roll_back (everything already restored) or throttle
    coalesce(names, CASE WHEN name IS NULL THEN [] ELSE [name] END) AS names,
    nullif(plans.kind, spans.kind) AS plan_kind,    -- null for a plan that only cancels
    plans.changes,                                  -- number of changes of the plan
    CASE
        WHEN in_all IS NULL THEN last_outcome
        WHEN applied = in_all THEN 'applied'
        WHEN pending > 0 THEN 'pending'
        WHEN fenced > 0 THEN 'fenced'
        WHEN failed > 0 THEN 'failed'
        WHEN unknown > 0 THEN 'unknown'
        WHEN stale > 0 THEN 'stale'
        ELSE 'skipped'
    END AS outcome,                                 -- applied if all rows were, else the most severe
    who,
    began_at,
    ended_at,
    coalesce(applied, 0) AS applied,
    coalesce(stale, 0) AS stale,                    -- not written, because the cluster had changed
    coalesce(fenced, 0) AS fenced,                  -- not written, because another controller took over
    coalesce(failed, 0) AS failed,
    coalesce(unknown, 0) AS unknown,                -- the response was lost
    coalesce(skipped, 0) AS skipped,
    coalesce(pending, 0) AS pending,                -- intents without an outcome, because the commit was killed
    message                                         -- the last message, of rows not applied first
FROM spans
JOIN times USING (plan_id, attempt)
LEFT JOIN plans USING (plan_id)
LEFT JOIN outcomes USING (plan_id, attempt)
LEFT JOIN whys USING (plan_id, attempt)
ORDER BY began_at DESC, plan_id, attempt
