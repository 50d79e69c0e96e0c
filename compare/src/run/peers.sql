-- What is compared with, in tables of its own.

-- A row as ShedLock and Quartz keep it; with the room that a row which is updated all the time needs.
CREATE UNLOGGED TABLE bare (name text PRIMARY KEY, token text, until timestamptz NOT NULL DEFAULT now()) WITH (fillfactor = 50);
CREATE TABLE bare_logged (name text PRIMARY KEY, token text, until timestamptz NOT NULL DEFAULT now()) WITH (fillfactor = 50);

-- The columns and the two indexes that river's fetching and sweeping need.
CREATE TABLE river_like (
  id bigserial PRIMARY KEY, state text NOT NULL DEFAULT 'available', queue text NOT NULL DEFAULT 'q',
  priority smallint NOT NULL DEFAULT 1, attempt smallint NOT NULL DEFAULT 0, max_attempts smallint NOT NULL DEFAULT 25,
  created_at timestamptz NOT NULL DEFAULT now(), scheduled_at timestamptz NOT NULL, attempted_at timestamptz,
  finalized_at timestamptz, args bytea NOT NULL
);
CREATE INDEX river_like_fetch ON river_like (state, queue, priority, scheduled_at, id);
CREATE INDEX river_like_finalized ON river_like (state, finalized_at) WHERE finalized_at IS NOT NULL;

CREATE TABLE pgmq_like (
  msg_id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, read_ct integer NOT NULL DEFAULT 0,
  enqueued_at timestamptz NOT NULL DEFAULT now(), vt timestamptz NOT NULL, message bytea NOT NULL
);
CREATE INDEX pgmq_like_vt ON pgmq_like (vt);
