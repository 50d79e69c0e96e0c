-- Locks: who holds a name, who waits for it, and which tokens were abandoned. All times are microseconds of the server's clock.
--
-- Whatever looks at the queue of a name first takes the advisory lock of the name, until the transaction ends: shared memory,
-- no row version, no flush. Two paths go without it, a renewal and the release of a lock without waiters; therefore each
-- write of the row is conditional, and a request that changed no row looks again.

CREATE SCHEMA tenure;

-- Constant facts of this installation: one row.
CREATE TABLE tenure.setting (
  one boolean PRIMARY KEY DEFAULT true CHECK (one), version integer NOT NULL, logged boolean NOT NULL, longest bigint NOT NULL
);
INSERT INTO tenure.setting (version, logged, longest) VALUES (1, {logged}, {longest});

-- No index on what changes, and room in each page: updates stay in their page.
CREATE {unlogged} TABLE tenure.lock (
  name    bytea   PRIMARY KEY,
  fence   bigint  NOT NULL,               -- the last one given, reserved ones included
  first   bigint  NOT NULL,               -- the first of the holder's
  owner   text,                           -- of a re-entrant lock
  entries text[]  NOT NULL,               -- the holder's tokens; empty: free
  reported bigint[] NOT NULL,              -- the ttl reported to each of them
  since   bigint  NOT NULL,
  until   bigint  NOT NULL,
  label   bytea,                          -- UTF-8, whatever the encoding of the database; also zero bytes
  handed  boolean NOT NULL DEFAULT false, -- given by a release, and not yet made to last
  queued  boolean NOT NULL DEFAULT false, -- there may be waiters: each request has to look
  graves  bigint  NOT NULL DEFAULT 0      -- until when there may be tombstones of the name; 0: there is none
) WITH (fillfactor = 50);

-- After a crash every connection is gone, and with it every waiter and every request on its way.
CREATE UNLOGGED TABLE tenure.waiter (
  name    bytea   NOT NULL,
  place   bigint  NOT NULL GENERATED ALWAYS AS IDENTITY,
  token   text    NOT NULL,
  client  bigint  NOT NULL,               -- its channel, and the advisory lock of its listening session
  present bigint  NOT NULL,               -- until when it counts as waiting
  ttl     bigint  NOT NULL,
  fences  integer NOT NULL,
  accepts boolean NOT NULL,               -- takes the lock without asking
  label   bytea,
  PRIMARY KEY (name, place), UNIQUE (name, token)
) WITH (fillfactor = 70);

CREATE UNLOGGED TABLE tenure.tombstone (
  name bytea NOT NULL, token text NOT NULL, until bigint NOT NULL, PRIMARY KEY (name, token)
);
CREATE INDEX tombstone_until ON tenure.tombstone (until);

-- One row for as long as the table of locks has all that was granted. It is emptied together with that table: by a crash, and by
-- the promotion of a standby.
CREATE {unlogged} TABLE tenure.epoch (one boolean PRIMARY KEY DEFAULT true CHECK (one), open_at bigint NOT NULL);
INSERT INTO tenure.epoch (open_at) VALUES (0);

-- The clock; now() is the begin of the transaction.
CREATE FUNCTION tenure.us() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- Refuses transactions that continue with an old snapshot after a wait: they would not see who holds a name by now, what was
-- abandoned, nor which message has a name already.
CREATE FUNCTION tenure.fresh() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
    RAISE EXCEPTION 'locks and queues are decided under READ COMMITTED only, this transaction is %',
      upper(current_setting('transaction_isolation')) USING ERRCODE = 'TN002';
  END IF;
END $$;

-- What guarded transactions lock.
CREATE FUNCTION tenure.guard_key(p_name bytea) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$ SELECT hashtextextended(encode(p_name, 'hex'), 1952804454) $$;

-- Whether no guarded transaction of the name is open. If so, none begins until the caller's transaction ends. The lock is shared, so
-- callers exclude guards and not each other.
CREATE FUNCTION tenure.unguarded(p_name bytea) RETURNS boolean LANGUAGE sql VOLATILE AS
$$ SELECT pg_try_advisory_xact_lock_shared(tenure.guard_key(p_name)) $$;

-- For how long a turn is kept for a waiter that has to ask, and a lease lasts that was given unasked.
CREATE FUNCTION tenure.claim() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 2000000::bigint $$;

-- Gives a free name to its first waiter that listens: the lock, if it takes it unasked, or the turn. The caller has the name's
-- advisory lock.
CREATE FUNCTION tenure.turn(p_name bytea, p_floor bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  t bigint := tenure.us();
  w tenure.waiter;
  f bigint;
BEGIN
  IF EXISTS (SELECT FROM tenure.lock l WHERE l.name = p_name AND l.entries <> '{}')
    AND NOT tenure.unguarded(p_name) THEN
    RETURN; -- its hold has ended, and a transaction that it guards is still open
  END IF;
  FOR w IN SELECT * FROM tenure.waiter x WHERE x.name = p_name ORDER BY x.place LOOP
    IF w.present <= t THEN
      DELETE FROM tenure.waiter x WHERE x.name = p_name AND x.place = w.place;
    ELSIF pg_try_advisory_xact_lock_shared(w.client) THEN
      DELETE FROM tenure.waiter x WHERE x.name = p_name AND x.client = w.client; -- its client does not listen: dead, or cut off
    ELSIF w.accepts THEN
      UPDATE tenure.lock l
        SET first = greatest(l.fence + 1, t, p_floor + 1), fence = greatest(l.fence + 1, t, p_floor + 1) + w.fences - 1,
            owner = NULL, entries = ARRAY[w.token], reported = ARRAY[least(w.ttl, tenure.claim())], since = t,
            until = t + least(w.ttl, tenure.claim()), label = w.label, handed = true, queued = true
        WHERE l.name = p_name AND (l.entries = '{}' OR l.until <= t) RETURNING l.first INTO f;
      IF NOT FOUND THEN RETURN; END IF; -- renewed in this instant
      DELETE FROM tenure.waiter x WHERE x.name = p_name AND x.place = w.place;
      PERFORM pg_notify('tenure_' || to_hex(w.client),
        concat_ws(' ', 'h', w.token, f, least(w.ttl, tenure.claim()), t, w.fences));
      RETURN;
    ELSE
      UPDATE tenure.waiter x SET present = least(x.present, t + tenure.claim()) WHERE x.name = p_name AND x.place = w.place;
      PERFORM pg_notify('tenure_' || to_hex(w.client), 'w ' || w.token);
      RETURN;
    END IF;
  END LOOP;
  -- No waiter took it: the next release of this name needs no look at the queue.
  UPDATE tenure.lock l SET queued = EXISTS (SELECT FROM tenure.waiter x WHERE x.name = p_name)
    WHERE l.name = p_name AND l.queued;
END $$;

-- Removes up to eight names of a page of the table, taken at random, that were idle for a day: the clock is past their fences.
CREATE FUNCTION tenure.sweep(at bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  page bigint := floor(random() * (pg_relation_size('tenure.lock') / current_setting('block_size')::bigint));
BEGIN
  DELETE FROM tenure.lock x WHERE x.ctid = ANY (ARRAY(
    SELECT y.ctid FROM tenure.lock y WHERE y.ctid >= format('(%s,0)', page)::tid AND y.ctid < format('(%s,0)', page + 1)::tid
      AND y.until < at - 86400000000 AND y.fence < at - 86400000000 LIMIT 8 FOR UPDATE SKIP LOCKED));
END $$;

-- Takes a name, enters it once more, or returns that it is busy.
-- code: 1 granted now, 2 granted by an earlier request, 3 busy; -1 abandoned, -2 the queue is full (n), -3 leases were
-- forgotten (recheck), -4 too deep.
CREATE FUNCTION tenure.acquire(
  p_name bytea, p_owner text, p_token text, p_ttl bigint, p_fences integer, p_label bytea, p_presence bigint,
  p_accepts boolean, p_client bigint, p_max_waiters integer, p_max_depth integer, p_floor bigint,
  OUT code integer, OUT fence bigint, OUT ttl bigint, OUT n integer, OUT depth integer, OUT recheck bigint, OUT at bigint
) LANGUAGE plpgsql AS $$
DECLARE
  l tenure.lock;
  w tenure.waiter;
  f bigint;
  my_place bigint;
  waiting integer;
  lapsed boolean;
  known boolean;
  held boolean;
BEGIN
  IF p_presence IS NULL THEN
    -- A try that finds the name taken writes nothing, and waits for no row.
    SELECT * INTO l FROM tenure.lock x WHERE x.name = p_name;
    at := tenure.us();
    IF FOUND AND l.entries <> '{}' AND l.until > at AND NOT p_token = ANY (l.entries)
      AND (p_owner IS NULL OR l.owner IS DISTINCT FROM p_owner) THEN
      code := 3; n := -1; recheck := l.until - at; RETURN;
    END IF;
  END IF;
  IF current_setting('transaction_isolation') <> 'read committed' THEN PERFORM tenure.fresh(); END IF;
  -- From here on no other request changes the queue of the name. The wait may be long, so the clock is read after it.
  PERFORM pg_advisory_xact_lock(hashtextextended(encode(p_name, 'hex'), 1952804453));
  at := tenure.us();
  IF p_owner IS NULL THEN
    -- The usual case in one step: the name is free and without waiters, or it was handed over to this token. A condition on
    -- another table would cost more than all the rest.
    UPDATE tenure.lock x
      SET first = CASE WHEN x.handed THEN x.first ELSE greatest(x.fence + 1, at, p_floor + 1) END,
          fence = CASE WHEN x.handed THEN x.fence ELSE greatest(x.fence + 1, at, p_floor + 1) + p_fences - 1 END,
          owner = NULL, entries = ARRAY[p_token], reported = ARRAY[p_ttl], since = CASE WHEN x.handed THEN x.since ELSE at END,
          until = CASE WHEN x.handed THEN greatest(x.until, at + p_ttl) ELSE at + p_ttl END, label = p_label, handed = false
      WHERE x.name = p_name AND (x.entries = '{}' AND NOT x.queued OR x.handed AND x.entries = ARRAY[p_token] AND x.until > at)
        AND x.graves <= at RETURNING x.first, x.fence - x.first + 1 INTO fence, n;
    IF FOUND THEN code := 1; ttl := p_ttl; depth := 1; RETURN; END IF;
  END IF;
  LOOP
    SELECT * INTO l FROM tenure.lock x WHERE x.name = p_name;
    known := FOUND;
    at := tenure.us();
    -- Only then can there be a tombstone of the name: most requests are spared that table.
    IF NOT known OR l.graves > at THEN
      IF EXISTS (SELECT FROM tenure.tombstone x WHERE x.name = p_name AND x.token = p_token AND x.until > at) THEN
        code := -1; RETURN;
      END IF;
    END IF;
    held := known AND l.entries <> '{}' AND l.until > at;
    -- A repeated request gets the grant that it has: it must not queue behind itself.
    IF held AND l.owner IS NOT DISTINCT FROM p_owner AND p_token = ANY (l.entries) THEN
      fence := l.first; depth := cardinality(l.entries); n := 1; code := 2;
      ttl := l.reported[array_position(l.entries, p_token)];
      IF l.handed THEN
        UPDATE tenure.lock x SET until = greatest(x.until, at + p_ttl), reported = ARRAY[p_ttl], handed = false
          WHERE x.name = p_name AND p_token = ANY (x.entries) AND x.until > at;
        CONTINUE WHEN NOT FOUND;
        code := 1; ttl := p_ttl; n := l.fence - l.first + 1;
      END IF;
      RETURN;
    END IF;
    -- A re-entry goes past the queue, where it would wait for its own hold to end.
    IF held AND p_owner IS NOT NULL AND l.owner = p_owner THEN
      IF cardinality(l.entries) >= p_max_depth THEN code := -4; RETURN; END IF;
      UPDATE tenure.lock x SET until = greatest(x.until, at + p_ttl), entries = x.entries || p_token,
          reported = x.reported || (greatest(x.until, at + p_ttl) - at)
        WHERE x.name = p_name AND x.owner = p_owner AND x.first = l.first AND x.until > at
        RETURNING x.first, x.until - at, cardinality(x.entries) INTO fence, ttl, depth;
      CONTINUE WHEN NOT FOUND;
      DELETE FROM tenure.waiter x WHERE x.name = p_name AND x.token = p_token;
      code := 1; n := 1; RETURN;
    END IF;
    -- The first waiter that is present and listens has the turn. A try, or a waiter behind it, does not get past it.
    w := NULL;
    IF NOT held AND known AND l.queued THEN
      SELECT * INTO w FROM tenure.waiter x WHERE x.name = p_name AND x.present > at ORDER BY x.place LIMIT 1;
      IF w.token <> p_token AND pg_try_advisory_xact_lock_shared(w.client) THEN
        DELETE FROM tenure.waiter x WHERE x.name = p_name AND x.client = w.client; -- its client does not listen
        CONTINUE;
      END IF;
    END IF;
    IF NOT held AND (w.token IS NULL OR w.token = p_token) THEN
      IF known THEN
        IF l.entries <> '{}' AND NOT tenure.unguarded(p_name) THEN
          code := 3; n := -1; recheck := 100000; RETURN; -- a transaction that its last holder guards is still open
        END IF;
        DELETE FROM tenure.waiter x WHERE l.queued AND x.name = p_name AND x.token = p_token;
        UPDATE tenure.lock x
          SET first = greatest(x.fence + 1, at, p_floor + 1), fence = greatest(x.fence + 1, at, p_floor + 1) + p_fences - 1,
              owner = p_owner, entries = ARRAY[p_token], reported = ARRAY[p_ttl], since = at, until = at + p_ttl,
              label = p_label, handed = false,
              queued = x.queued AND EXISTS (SELECT FROM tenure.waiter y WHERE y.name = p_name)
          WHERE x.name = p_name AND (x.entries = '{}' OR x.until <= at) RETURNING x.first INTO fence;
        CONTINUE WHEN NOT FOUND; -- renewed in this instant, or swept
      ELSE
        -- Only with a new name can the table be one that has forgotten its leases.
        SELECT e.open_at INTO recheck FROM tenure.epoch e;
        IF NOT FOUND THEN
          INSERT INTO tenure.epoch (open_at) SELECT at + s.longest FROM tenure.setting s ON CONFLICT DO NOTHING;
          SELECT at + s.longest INTO recheck FROM tenure.setting s;
        END IF;
        IF recheck > at THEN code := -3; recheck := recheck - at; RETURN; END IF;
        -- A prepared transaction keeps its guard through a crash that empties this table.
        IF NOT tenure.unguarded(p_name) THEN code := 3; n := -1; recheck := 100000; RETURN; END IF;
        recheck := NULL;
        PERFORM tenure.sweep(at);
        f := greatest(at, p_floor + 1);
        INSERT INTO tenure.lock AS x (name, fence, first, owner, entries, reported, since, until, label, graves)
          SELECT p_name, f + p_fences - 1, f, p_owner, ARRAY[p_token], ARRAY[p_ttl], at, at + p_ttl, p_label,
              coalesce(max(y.until), 0) FROM tenure.tombstone y WHERE y.name = p_name
          ON CONFLICT DO NOTHING RETURNING x.first INTO fence;
        CONTINUE WHEN NOT FOUND;
      END IF;
      code := 1; ttl := p_ttl; n := p_fences; depth := 1; RETURN;
    END IF;
    code := 3; n := -1; recheck := NULL;
    IF p_presence IS NOT NULL THEN
      -- The mark comes before the waiter: where there is none, a release neither takes the advisory lock nor looks.
      IF NOT l.queued THEN
        UPDATE tenure.lock x SET queued = true WHERE x.name = p_name AND x.entries <> '{}';
        CONTINUE WHEN NOT FOUND; -- released in this instant
      END IF;
      SELECT count(*) FILTER (WHERE x.present > at), bool_or(x.present <= at), max(x.place) FILTER (WHERE x.token = p_token)
        INTO waiting, lapsed, my_place FROM tenure.waiter x WHERE x.name = p_name;
      IF my_place IS NULL THEN
        IF lapsed THEN DELETE FROM tenure.waiter x WHERE x.name = p_name AND x.present <= at; END IF;
        IF waiting >= p_max_waiters THEN code := -2; RETURN; END IF;
        INSERT INTO tenure.waiter (name, token, client, present, ttl, fences, accepts, label)
          VALUES (p_name, p_token, p_client, at + p_presence, p_ttl, p_fences, p_accepts, p_label);
        n := waiting;
      ELSE
        UPDATE tenure.waiter x SET present = at + p_presence, client = p_client WHERE x.name = p_name AND x.place = my_place;
        SELECT count(*) INTO n FROM tenure.waiter x WHERE x.name = p_name AND x.present > at AND x.place < my_place;
      END IF;
    END IF;
    IF held THEN
      IF n <= 0 THEN recheck := l.until - at; END IF;
    ELSE
      -- Free, and another is first: its turn begins now, if no statement has begun it.
      IF w.present > at + tenure.claim() THEN PERFORM tenure.turn(p_name, p_floor); END IF;
      recheck := least(w.present - at, tenure.claim());
    END IF;
    RETURN;
  END LOOP;
END $$;

-- Those of the names whose rows no other transaction keeps locked. They are locked then.
CREATE FUNCTION tenure.lockable(p_names bytea[]) RETURNS bytea[] LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(array_agg(x.name), '{}')
    FROM (SELECT l.name FROM tenure.lock l WHERE l.name = ANY (p_names) FOR NO KEY UPDATE SKIP LOCKED) x
$$;

-- For each hold what is left of its lease, in order; nothing for one that is lost. Without p_waits -1 for one whose row another
-- transaction keeps locked; with it, one such row fails all.
CREATE FUNCTION tenure.renew(p_names bytea[], p_tokens text[], p_ttl bigint, p_waits boolean) RETURNS TABLE (remaining bigint)
LANGUAGE plpgsql AS $$
DECLARE
  t bigint := tenure.us();
  names bytea[] := CASE WHEN p_waits THEN p_names ELSE tenure.lockable(p_names) END;
BEGIN
  -- A row that another transaction keeps is left out at first: it must not delay the renewals of the others.
  RETURN QUERY
    WITH r AS (SELECT * FROM unnest(p_names, p_tokens) WITH ORDINALITY AS r(name, token, ord)),
    u AS (UPDATE tenure.lock l SET until = greatest(l.until, t + p_ttl), handed = false FROM r
      WHERE l.name = r.name AND l.owner IS NULL AND l.entries = ARRAY[r.token] AND l.until > t AND (p_waits OR l.name = ANY (names))
      RETURNING r.ord, l.until - t AS remaining)
    SELECT CASE WHEN p_waits OR r.name = ANY (names) THEN u.remaining ELSE -1 END FROM r LEFT JOIN u USING (ord) ORDER BY r.ord;
END $$;

CREATE FUNCTION tenure.renew_hold(p_names bytea[], p_owners text[], p_fences bigint[], p_ttl bigint, p_waits boolean)
RETURNS TABLE (remaining bigint) LANGUAGE plpgsql AS $$
DECLARE
  t bigint := tenure.us();
  names bytea[] := CASE WHEN p_waits THEN p_names ELSE tenure.lockable(p_names) END;
BEGIN
  RETURN QUERY
    WITH r AS (SELECT * FROM unnest(p_names, p_owners, p_fences) WITH ORDINALITY AS r(name, owner, fence, ord)),
    u AS (UPDATE tenure.lock l SET until = greatest(l.until, t + p_ttl) FROM r
      WHERE l.name = r.name AND l.owner = r.owner AND l.first = r.fence AND l.entries <> '{}' AND l.until > t
        AND (p_waits OR l.name = ANY (names))
      RETURNING r.ord, l.until - t AS remaining)
    SELECT CASE WHEN p_waits OR r.name = ANY (names) THEN u.remaining ELSE -1 END FROM r LEFT JOIN u USING (ord) ORDER BY r.ord;
END $$;

-- Takes an entry out of its hold: how many are left, or -1 if there is no such entry. While a transaction is open that the hold
-- guards, the last entry stays and its lease ends now: the name is granted when the transaction has ended. The caller has the
-- advisory lock.
CREATE FUNCTION tenure.leave(p_name bytea, p_owner text, p_token text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE rest integer;
BEGIN
  IF NOT tenure.unguarded(p_name) THEN
    UPDATE tenure.lock l SET until = tenure.us(), handed = false
      WHERE l.name = p_name AND l.owner IS NOT DISTINCT FROM p_owner AND l.entries = ARRAY[p_token] AND l.until > tenure.us();
    IF FOUND THEN RETURN 0; END IF;
  END IF;
  UPDATE tenure.lock l
    SET reported = l.reported[:array_position(l.entries, p_token) - 1] || l.reported[array_position(l.entries, p_token) + 1:],
        entries = array_remove(l.entries, p_token), handed = false
    WHERE l.name = p_name AND l.owner IS NOT DISTINCT FROM p_owner AND p_token = ANY (l.entries) AND l.until > tenure.us()
    RETURNING cardinality(l.entries) INTO rest;
  RETURN coalesce(rest, -1);
END $$;

-- As leave; the last entry frees the name.
CREATE FUNCTION tenure.release(p_name bytea, p_owner text, p_token text, p_floor bigint) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
  t bigint;
  w tenure.waiter;
  f bigint;
  rest integer;
  unguarded boolean := p_owner IS NULL AND tenure.unguarded(p_name);
BEGIN
  IF unguarded THEN
    -- The usual release: one conditional write without the advisory lock, which hits nothing if there are waiters.
    UPDATE tenure.lock l SET entries = '{}', reported = '{}', handed = false
      WHERE l.name = p_name AND l.owner IS NULL AND l.entries = ARRAY[p_token] AND l.until > tenure.us() AND NOT l.queued;
    IF FOUND THEN RETURN 0; END IF;
  END IF;
  IF current_setting('transaction_isolation') <> 'read committed' THEN PERFORM tenure.fresh(); END IF;
  PERFORM pg_advisory_xact_lock(hashtextextended(encode(p_name, 'hex'), 1952804453));
  IF unguarded THEN
    -- What a turn does for a first waiter that is there and takes the lock unasked, in one step.
    t := tenure.us();
    SELECT * INTO w FROM tenure.waiter x WHERE x.name = p_name ORDER BY x.place LIMIT 1;
    IF w.accepts AND w.present > t AND NOT pg_try_advisory_xact_lock_shared(w.client) THEN
      WITH given AS (
        UPDATE tenure.lock l
          SET first = greatest(l.fence + 1, t, p_floor + 1), fence = greatest(l.fence + 1, t, p_floor + 1) + w.fences - 1,
              entries = ARRAY[w.token], reported = ARRAY[least(w.ttl, tenure.claim())], since = t,
              until = t + least(w.ttl, tenure.claim()), label = w.label, handed = true
          WHERE l.name = p_name AND l.owner IS NULL AND l.entries = ARRAY[p_token] AND l.until > t RETURNING l.first)
      DELETE FROM tenure.waiter x USING given WHERE x.name = p_name AND x.place = w.place RETURNING given.first INTO f;
      IF NOT FOUND THEN RETURN -1; END IF;
      PERFORM pg_notify('tenure_' || to_hex(w.client),
        concat_ws(' ', 'h', w.token, f, least(w.ttl, tenure.claim()), t, w.fences));
      RETURN 0;
    END IF;
  END IF;
  rest := tenure.leave(p_name, p_owner, p_token);
  IF rest = 0 THEN PERFORM tenure.turn(p_name, p_floor); END IF;
  RETURN rest;
END $$;

-- Undoes whatever the token asked for, and refuses what it may still ask for.
CREATE FUNCTION tenure.abandon(p_name bytea, p_owner text, p_token text, p_for bigint, p_floor bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  t bigint;
  rest integer;
  waited boolean;
BEGIN
  PERFORM tenure.fresh();
  PERFORM pg_advisory_xact_lock(hashtextextended(encode(p_name, 'hex'), 1952804453));
  t := tenure.us();
  INSERT INTO tenure.tombstone VALUES (p_name, p_token, t + p_for)
    ON CONFLICT (name, token) DO UPDATE SET until = excluded.until;
  -- Rounded up: of many abandonments one writes the row.
  UPDATE tenure.lock l SET graves = t + p_for + 10000000 WHERE l.name = p_name AND l.graves < t + p_for;
  DELETE FROM tenure.tombstone x WHERE x.ctid = ANY (ARRAY(
    SELECT y.ctid FROM tenure.tombstone y WHERE y.until <= t LIMIT 8 FOR UPDATE SKIP LOCKED));
  rest := tenure.leave(p_name, p_owner, p_token);
  DELETE FROM tenure.waiter x WHERE x.name = p_name AND x.token = p_token;
  waited := FOUND;
  -- A waiter may have had the turn at a free lock: the next one would wait until that turn has lapsed.
  IF rest = 0 OR waited AND EXISTS (SELECT FROM tenure.lock l WHERE l.name = p_name AND (l.entries = '{}' OR l.until <= t)) THEN
    PERFORM tenure.turn(p_name, p_floor);
  END IF;
END $$;

-- 1 released, 0 not held, -1 held by another than the expected hold, -2 a transaction that it guards is open, whether or not its
-- lease has ended.
CREATE FUNCTION tenure.force_release(p_name bytea, p_expected bigint, p_floor bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  f bigint;
  lapsed boolean;
BEGIN
  PERFORM tenure.fresh();
  PERFORM pg_advisory_xact_lock(hashtextextended(encode(p_name, 'hex'), 1952804453));
  SELECT l.first, l.until <= tenure.us() INTO f, lapsed FROM tenure.lock l WHERE l.name = p_name AND l.entries <> '{}';
  IF NOT FOUND OR lapsed AND tenure.unguarded(p_name) THEN RETURN 0; END IF;
  IF f <> p_expected THEN RETURN -1; END IF;
  -- Behind the comparison: an operator who expects another hold learns that first.
  IF NOT tenure.unguarded(p_name) THEN RETURN -2; END IF;
  UPDATE tenure.lock l SET entries = '{}', reported = '{}', handed = false WHERE l.name = p_name AND l.first = f;
  PERFORM tenure.turn(p_name, p_floor);
  RETURN 1;
END $$;

-- The remaining lease is null if the lease has ended and a transaction that it guards is open.
CREATE FUNCTION tenure.inspect(p_name bytea, OUT label bytea, OUT owner text, OUT fence bigint, OUT depth integer,
  OUT held_for bigint, OUT remaining bigint, OUT waiters bigint) LANGUAGE plpgsql AS $$
DECLARE t bigint := tenure.us();
BEGIN
  SELECT l.label, l.owner, l.first, cardinality(l.entries), t - l.since, CASE WHEN l.until > t THEN l.until - t END
    INTO label, owner, fence, depth, held_for, remaining
    FROM tenure.lock l WHERE l.name = p_name AND l.entries <> '{}'
      AND CASE WHEN l.until > t THEN true ELSE NOT tenure.unguarded(p_name) END;
  SELECT count(*) INTO waiters FROM tenure.waiter x WHERE x.name = p_name AND x.present > t;
END $$;

-- Called in a user's transaction. The name is not granted to another holder before that transaction has ended. TN001: this fence does
-- not hold the name any more. TN002: the transaction is not READ COMMITTED. Each fence of a grant is accepted.
CREATE FUNCTION tenure.guard(name bytea, fence bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM tenure.fresh();
  -- Exclusive: a client passes a grant of several fences on among its own tasks, and each of them may begin a transaction.
  PERFORM pg_advisory_xact_lock(tenure.guard_key(guard.name));
  PERFORM FROM tenure.lock l WHERE l.name = guard.name AND l.entries <> '{}' AND guard.fence BETWEEN l.first AND l.fence
    AND l.until > tenure.us();
  IF NOT FOUND THEN RAISE EXCEPTION 'fence % does not hold this lock any more', guard.fence USING ERRCODE = 'TN001'; END IF;
END $$;
CREATE FUNCTION tenure.guard(name text, fence bigint) RETURNS void LANGUAGE sql VOLATILE AS
$$ SELECT tenure.guard(convert_to(name, 'UTF8'), fence) $$;

-- The open transactions that guard locks: of a prepared one its identifier, of others the session. When it began is null for
-- those who may not see it.
CREATE FUNCTION tenure.guards(OUT name bytea, OUT fence bigint, OUT lapsed boolean, OUT pid integer, OUT prepared text,
  OUT since timestamptz) RETURNS SETOF record LANGUAGE sql VOLATILE AS $$
  SELECT l.name, l.first, l.until <= tenure.us(), k.pid, p.gid, coalesce(a.xact_start, p.prepared)
    FROM pg_locks k JOIN tenure.lock l ON l.entries <> '{}' AND tenure.guard_key(l.name) = (k.classid::bigint << 32 | k.objid::bigint)
    LEFT JOIN pg_stat_activity a ON a.pid = k.pid
    LEFT JOIN pg_locks x ON k.pid IS NULL AND x.pid IS NULL AND x.virtualtransaction = k.virtualtransaction
      AND x.locktype = 'transactionid'
    LEFT JOIN pg_prepared_xacts p ON p.transaction = x.transactionid
    WHERE k.locktype = 'advisory' AND k.objsubid = 1 AND k.mode = 'ExclusiveLock' AND k.granted
      AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
$$;

-- What a driver asks when it connects.
CREATE FUNCTION tenure.about(OUT version integer, OUT logged boolean, OUT longest bigint, OUT standby boolean)
LANGUAGE sql STABLE AS $$ SELECT s.version, s.logged, s.longest, pg_is_in_recovery() FROM tenure.setting s $$;
