-- Permits: the holds of semaphores and read-write locks, and the line of each name. A schema that was made without them works as
-- before, and gets them by these statements. They may be run again.
--
-- A name here is a letter, s for a semaphore or r for a read-write lock, and the bytes of the name itself. All times are microseconds
-- of the server's clock.
--
-- Every function but a renewal and an inspection first takes the advisory lock of the name, until its transaction ends. A renewal
-- changes nothing but the end of a lease, and only to a later time.
--
-- Each function makes the same decisions as the rule of the crate tenure-core, rules::permits, in the same order.

-- The sums over the holds of a name: a grant reads and writes this row and its own hold alone. Its bounds may be earlier than
-- the time that they stand for, and never later.
CREATE UNLOGGED TABLE IF NOT EXISTS tenure.permit (
  name          bytea   PRIMARY KEY,
  fence         bigint  NOT NULL DEFAULT 0,  -- the last one given
  used          bigint  NOT NULL DEFAULT 0,  -- the weight of all holds
  holders       integer NOT NULL DEFAULT 0,
  ends          bigint,                      -- no lease ends before; null: there is no hold
  lapse         bigint,                      -- no waiter is absent before; null: there is no waiter
  graves        bigint  NOT NULL DEFAULT 0,  -- until when there may be tombstones of the name
  grow_token    text,                        -- the hold that waits to weigh more
  grow_weight   bigint,                      -- the weight that it asked for
  grow_capacity bigint,
  grow_until    bigint,                      -- the end of its presence
  grow_client   bigint,
  grow_called   boolean                      -- it was notified that it fits
) WITH (fillfactor = 50);

-- No index on what changes: a renewal stays in its page.
CREATE UNLOGGED TABLE IF NOT EXISTS tenure.permit_hold (
  name     bytea   NOT NULL,
  token    text    NOT NULL,
  weight   bigint  NOT NULL,
  capacity bigint  NOT NULL,
  fence    bigint  NOT NULL,
  since    bigint  NOT NULL,
  until    bigint  NOT NULL,
  ttl      bigint  NOT NULL,                 -- reported with the grant
  step     bigint  NOT NULL,                 -- the number of the last change of weight
  handed   boolean NOT NULL,                 -- given by another's request, and not yet extended
  label    bytea,
  PRIMARY KEY (name, token)
) WITH (fillfactor = 70);

CREATE UNLOGGED TABLE IF NOT EXISTS tenure.permit_waiter (
  name     bytea   NOT NULL,
  place    bigint  NOT NULL GENERATED ALWAYS AS IDENTITY,
  token    text    NOT NULL,
  weight   bigint  NOT NULL,
  capacity bigint  NOT NULL,
  client   bigint  NOT NULL,                 -- its channel, and the advisory lock of its listening session
  present  bigint  NOT NULL,                 -- until when it counts as waiting
  called   boolean NOT NULL DEFAULT false,   -- it was notified that it fits, and has not asked since
  accepts  boolean NOT NULL,                 -- takes the hold without asking
  ttl      bigint  NOT NULL,
  label    bytea,
  PRIMARY KEY (name, place), UNIQUE (name, token)
) WITH (fillfactor = 70);

CREATE UNLOGGED TABLE IF NOT EXISTS tenure.permit_tombstone (
  name bytea NOT NULL, token text NOT NULL, until bigint NOT NULL, PRIMARY KEY (name, token)
);
CREATE INDEX IF NOT EXISTS permit_tombstone_until ON tenure.permit_tombstone (until);

-- Holds are logged where locks are.
DO $$ BEGIN
  IF (SELECT s.logged FROM tenure.setting s) THEN
    ALTER TABLE tenure.permit SET LOGGED;
    ALTER TABLE tenure.permit_hold SET LOGGED;
  END IF;
END $$;

-- The number of the advisory lock of a name.
CREATE OR REPLACE FUNCTION tenure.permit_key(p_name bytea) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$ SELECT hashtextextended(encode(p_name, 'hex'), 1952804457) $$;

-- Removes ended holds, absent waiters, and the wait of a hold that does not ask for more weight any longer.
CREATE OR REPLACE FUNCTION tenure.permit_settle(INOUT p tenure.permit, at bigint) LANGUAGE plpgsql AS $$
BEGIN
  IF p.ends <= at THEN
    -- A hold that is being renewed in this moment stays.
    DELETE FROM tenure.permit_hold h WHERE h.ctid = ANY (ARRAY(
      SELECT x.ctid FROM tenure.permit_hold x WHERE x.name = p.name AND x.until <= at FOR UPDATE SKIP LOCKED));
    SELECT coalesce(sum(h.weight), 0), count(*), min(h.until) INTO p.used, p.holders, p.ends
      FROM tenure.permit_hold h WHERE h.name = p.name;
  END IF;
  IF p.lapse <= at THEN
    DELETE FROM tenure.permit_waiter w WHERE w.name = p.name AND w.present <= at;
    SELECT min(w.present) INTO p.lapse FROM tenure.permit_waiter w WHERE w.name = p.name;
  END IF;
  IF p.grow_until <= at
    OR p.grow_token IS NOT NULL AND NOT EXISTS (SELECT FROM tenure.permit_hold h WHERE h.name = p.name AND h.token = p.grow_token) THEN
    p.grow_token := NULL; p.grow_until := NULL;
  END IF;
END $$;

-- Gives the turn to the hold that waits to weigh more, or to all waiters at the front that fit, one after the other. The waiter p_asker
-- asks in this request: its room is reserved, and it is not notified.
CREATE OR REPLACE FUNCTION tenure.permit_serve(INOUT p tenure.permit, at bigint, p_asker text, p_max_holders integer, p_floor bigint)
LANGUAGE plpgsql AS $$
DECLARE
  w tenure.permit_waiter;
  own bigint;
  before integer := 0;                       -- notified waiters at the front
  reserved bigint := 0;                      -- their weight
  smallest bigint := 4294967295;             -- the least capacity that one of them named
  waits boolean := false;
BEGIN
  IF p.grow_token IS NOT NULL THEN
    IF p.grow_called THEN RETURN; END IF;
    SELECT h.weight INTO own FROM tenure.permit_hold h WHERE h.name = p.name AND h.token = p.grow_token;
    IF p.used - coalesce(own, 0) + p.grow_weight > p.grow_capacity THEN RETURN; END IF;
    IF NOT pg_try_advisory_xact_lock_shared(p.grow_client) THEN
      p.grow_called := true;
      PERFORM pg_notify('tenure_' || to_hex(p.grow_client), 'w ' || p.grow_token);
      RETURN;
    END IF;
    p.grow_token := NULL; p.grow_until := NULL; -- its client does not listen
  END IF;
  IF p.lapse IS NULL THEN RETURN; END IF;
  FOR w IN SELECT * FROM tenure.permit_waiter x WHERE x.name = p.name ORDER BY x.place LOOP
    IF p.used + reserved + w.weight > least(smallest, w.capacity) OR p.holders + before >= p_max_holders THEN
      waits := true;
      EXIT;
    END IF;
    IF NOT w.called AND w.token IS DISTINCT FROM p_asker THEN
      IF pg_try_advisory_xact_lock_shared(w.client) THEN
        DELETE FROM tenure.permit_waiter x WHERE x.name = p.name AND x.place = w.place; -- its client does not listen
        CONTINUE;
      ELSIF w.accepts AND before = 0 THEN
        -- Behind notified waiters it asks as they do, so that fences are in the order of the line.
        DELETE FROM tenure.permit_waiter x WHERE x.name = p.name AND x.place = w.place;
        w.ttl := least(w.ttl, tenure.claim());
        p.fence := greatest(p.fence + 1, at, p_floor + 1);
        INSERT INTO tenure.permit_hold VALUES
          (p.name, w.token, w.weight, w.capacity, p.fence, at, at + w.ttl, w.ttl, 0, true, w.label);
        p.used := p.used + w.weight; p.holders := p.holders + 1; p.ends := least(p.ends, at + w.ttl);
        PERFORM pg_notify('tenure_' || to_hex(w.client), concat_ws(' ', 'h', w.token, p.fence, w.ttl, at, 1));
        CONTINUE;
      END IF;
      w.present := least(w.present, at + tenure.claim());
      UPDATE tenure.permit_waiter x SET called = true, present = w.present WHERE x.name = p.name AND x.place = w.place;
      p.lapse := least(p.lapse, w.present);
      PERFORM pg_notify('tenure_' || to_hex(w.client), 'w ' || w.token);
    END IF;
    waits := true; before := before + 1; reserved := reserved + w.weight; smallest := least(smallest, w.capacity);
  END LOOP;
  IF NOT waits THEN p.lapse := NULL; END IF;
END $$;

-- Stores what a request changed.
CREATE OR REPLACE FUNCTION tenure.permit_keep(p tenure.permit) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE tenure.permit x
    SET fence = p.fence, used = p.used, holders = p.holders, ends = p.ends, lapse = p.lapse, graves = p.graves, grow_token = p.grow_token,
        grow_weight = p.grow_weight, grow_capacity = p.grow_capacity, grow_until = p.grow_until, grow_client = p.grow_client,
        grow_called = p.grow_called
    WHERE x.name = p.name;
END $$;

-- The time at which enough leases have ended for a share to fit, if no client gives anything back before: at most the end of the
-- sixteenth. The hold p_but is left out, and p_used is the weight of the others.
CREATE OR REPLACE FUNCTION tenure.permit_room_at(p tenure.permit, p_but text, p_used bigint, p_weight bigint, p_capacity bigint,
  p_max_holders integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  h record;
  back bigint := 0;
  ended integer := 0;
  last bigint;
BEGIN
  FOR h IN SELECT x.until, x.weight FROM tenure.permit_hold x WHERE x.name = p.name AND x.token IS DISTINCT FROM p_but
    ORDER BY x.until, x.weight LIMIT 16 LOOP
    back := back + h.weight; ended := ended + 1; last := h.until;
    EXIT WHEN p_used - back + p_weight <= p_capacity AND p.holders - ended < p_max_holders;
  END LOOP;
  RETURN last;
END $$;

-- Removes up to eight names of a page of the table, taken at random, that were idle for a day: the clock is past their fences.
CREATE OR REPLACE FUNCTION tenure.permit_sweep(at bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  page bigint := floor(random() * (pg_relation_size('tenure.permit') / current_setting('block_size')::bigint));
  idle bytea;
BEGIN
  FOR idle IN SELECT x.name FROM tenure.permit x
    WHERE x.ctid >= format('(%s,0)', page)::tid AND x.ctid < format('(%s,0)', page + 1)::tid AND x.fence < at - 86400000000 LIMIT 8 LOOP
    CONTINUE WHEN NOT pg_try_advisory_xact_lock(tenure.permit_key(idle))
      OR EXISTS (SELECT FROM tenure.permit_hold h WHERE h.name = idle AND h.until > at - 86400000000)
      OR EXISTS (SELECT FROM tenure.permit_waiter w WHERE w.name = idle AND w.present > at - 86400000000);
    DELETE FROM tenure.permit x WHERE x.name = idle AND x.fence < at - 86400000000;
    CONTINUE WHEN NOT FOUND;
    DELETE FROM tenure.permit_hold h WHERE h.name = idle;
    DELETE FROM tenure.permit_waiter w WHERE w.name = idle;
  END LOOP;
END $$;

-- Takes a share, or returns that it does not fit.
-- code: 1 granted now, 2 granted by an earlier request, 3 busy; -1 abandoned, -2 the line is full, -3 leases were forgotten (recheck),
-- -5 more than the capacity.
CREATE OR REPLACE FUNCTION tenure.permit_acquire(
  p_name bytea, p_token text, p_weight bigint, p_capacity bigint, p_ttl bigint, p_label bytea, p_presence bigint, p_accepts boolean,
  p_client bigint, p_max_waiters integer, p_max_holders integer, p_floor bigint,
  OUT code integer, OUT fence bigint, OUT ttl bigint, OUT n integer, OUT recheck bigint, OUT at bigint
) LANGUAGE plpgsql AS $$
DECLARE
  p tenure.permit;
  old tenure.permit;
  h tenure.permit_hold;
  mine tenure.permit_waiter;
  head tenure.permit_waiter;
  w record;
  fits boolean;
  total bigint;
  smallest bigint;
  before integer := 0;
  place integer;                             -- the number of waiters before this one; null: it is none
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN PERFORM tenure.fresh(); END IF;
  PERFORM pg_advisory_xact_lock(tenure.permit_key(p_name));
  at := tenure.us();
  SELECT * INTO p FROM tenure.permit x WHERE x.name = p_name;
  IF NOT FOUND THEN
    SELECT max(x.until) FILTER (WHERE x.token = p_token) > at, coalesce(max(x.until), 0) INTO fits, p.graves
      FROM tenure.permit_tombstone x WHERE x.name = p_name;
    IF fits THEN code := -1; RETURN; END IF;
    IF p_weight < 1 OR p_weight > p_capacity THEN code := -5; RETURN; END IF;
    -- Only with a new name can the table be one that has forgotten its leases.
    SELECT e.open_at INTO recheck FROM tenure.epoch e;
    IF NOT FOUND THEN
      INSERT INTO tenure.epoch (open_at) SELECT at + s.longest FROM tenure.setting s ON CONFLICT DO NOTHING;
      SELECT at + s.longest INTO recheck FROM tenure.setting s;
    END IF;
    IF recheck > at THEN code := -3; recheck := recheck - at; RETURN; END IF;
    recheck := NULL;
    PERFORM tenure.permit_sweep(at);
    INSERT INTO tenure.permit (name, graves) VALUES (p_name, p.graves) RETURNING * INTO p;
  END IF;
  old := p;
  IF p.ends <= at OR p.lapse <= at OR p.grow_until <= at THEN p := tenure.permit_settle(p, at); END IF;
  IF p.graves > at AND EXISTS (SELECT FROM tenure.permit_tombstone x WHERE x.name = p_name AND x.token = p_token AND x.until > at) THEN
    p := tenure.permit_serve(p, at, NULL, p_max_holders, p_floor);
    IF p IS DISTINCT FROM old THEN PERFORM tenure.permit_keep(p); END IF;
    code := -1; RETURN;
  END IF;
  IF p.lapse IS NOT NULL THEN SELECT * INTO mine FROM tenure.permit_waiter x WHERE x.name = p_name AND x.token = p_token; END IF;
  -- Waiters before it may fit since a lease ended.
  IF p.lapse IS NOT NULL OR p.grow_token IS NOT NULL THEN p := tenure.permit_serve(p, at, p_token, p_max_holders, p_floor); END IF;
  IF p.holders > 0 THEN
    SELECT * INTO h FROM tenure.permit_hold x WHERE x.name = p_name AND x.token = p_token;
    IF FOUND THEN
      code := 2; fence := h.fence; ttl := h.ttl;
      IF h.handed THEN
        UPDATE tenure.permit_hold x SET until = greatest(x.until, at + p_ttl), ttl = p_ttl, handed = false
          WHERE x.name = p_name AND x.token = p_token;
        code := 1; ttl := p_ttl;
      END IF;
      IF p IS DISTINCT FROM old THEN PERFORM tenure.permit_keep(p); END IF;
      RETURN;
    END IF;
  END IF;
  -- A waiter keeps the share of its first request.
  IF mine.place IS NOT NULL THEN p_weight := mine.weight; p_capacity := mine.capacity; END IF;
  IF p_weight < 1 OR p_weight > p_capacity THEN
    IF p IS DISTINCT FROM old THEN PERFORM tenure.permit_keep(p); END IF;
    code := -5; RETURN;
  END IF;
  -- It fits beside the holds and behind the waiters before it, and they still fit afterwards.
  total := p.used + p_weight; smallest := p_capacity;
  fits := p.grow_token IS NULL AND total <= smallest AND p.holders < p_max_holders;
  IF fits AND p.lapse IS NOT NULL THEN
    FOR w IN SELECT x.weight, x.capacity FROM tenure.permit_waiter x
      WHERE x.name = p_name AND x.place < coalesce(mine.place, 9223372036854775807) ORDER BY x.place LOOP
      total := total + w.weight; smallest := least(smallest, w.capacity); before := before + 1;
      fits := total <= smallest AND p.holders + before < p_max_holders;
      EXIT WHEN NOT fits;
    END LOOP;
  END IF;
  IF fits THEN
    fence := greatest(p.fence + 1, at, p_floor + 1);
    code := 1; ttl := p_ttl;
    IF p.lapse IS NULL AND p.grow_until IS NULL AND old.grow_until IS NULL AND (old.ends > at OR old.ends IS NULL) THEN
      -- The usual case in one step: no other client waits, and no lease has ended.
      WITH given AS (INSERT INTO tenure.permit_hold VALUES
        (p_name, p_token, p_weight, p_capacity, permit_acquire.fence, at, at + p_ttl, p_ttl, 0, false, p_label))
      UPDATE tenure.permit x SET fence = permit_acquire.fence, used = p.used + p_weight, holders = p.holders + 1,
          ends = least(p.ends, at + p_ttl), lapse = NULL
        WHERE x.name = p_name;
      RETURN;
    END IF;
    IF mine.place IS NOT NULL THEN DELETE FROM tenure.permit_waiter x WHERE x.name = p_name AND x.place = mine.place; END IF;
    INSERT INTO tenure.permit_hold VALUES (p_name, p_token, p_weight, p_capacity, fence, at, at + p_ttl, p_ttl, 0, false, p_label);
    p.fence := fence; p.used := p.used + p_weight; p.holders := p.holders + 1; p.ends := least(p.ends, at + p_ttl);
    -- The capacity that it named no longer limits the waiters behind it.
    IF p.lapse IS NOT NULL THEN p := tenure.permit_serve(p, at, NULL, p_max_holders, p_floor); END IF;
    PERFORM tenure.permit_keep(p);
    RETURN;
  END IF;
  IF p_presence IS NOT NULL THEN
    IF mine.place IS NOT NULL THEN
      UPDATE tenure.permit_waiter x SET present = at + p_presence, client = p_client, called = false
        WHERE x.name = p_name AND x.place = mine.place;
    ELSE
      SELECT count(*) INTO place FROM tenure.permit_waiter x WHERE p.lapse IS NOT NULL AND x.name = p_name;
      IF place >= p_max_waiters THEN
        IF p IS DISTINCT FROM old THEN PERFORM tenure.permit_keep(p); END IF;
        code := -2; RETURN;
      END IF;
      INSERT INTO tenure.permit_waiter (name, token, weight, capacity, client, present, accepts, ttl, label)
        VALUES (p_name, p_token, p_weight, p_capacity, p_client, at + p_presence, p_accepts, p_ttl, p_label);
    END IF;
    p.lapse := least(p.lapse, at + p_presence);
  ELSIF mine.called THEN
    UPDATE tenure.permit_waiter x SET called = false WHERE x.name = p_name AND x.place = mine.place;
  END IF;
  IF mine.place IS NOT NULL THEN
    SELECT count(*) INTO place FROM tenure.permit_waiter x WHERE x.name = p_name AND x.place < mine.place;
  END IF;
  code := 3; n := CASE WHEN p_presence IS NULL THEN -1 ELSE place END;
  IF p.grow_token IS NOT NULL THEN
    IF coalesce(place, 0) = 0 THEN recheck := p.grow_until; END IF;
  ELSE
    IF p.lapse IS NOT NULL AND place IS DISTINCT FROM 0 THEN
      SELECT * INTO head FROM tenure.permit_waiter x WHERE x.name = p_name ORDER BY x.place LIMIT 1;
    END IF;
    IF head.called OR head.place IS NOT NULL AND place IS NULL AND p.holders < p_max_holders AND p.used + p_weight <= p_capacity THEN
      recheck := head.present; -- the first waiter lapses, and others look then
    ELSIF head.place IS NULL OR place IS NULL THEN
      recheck := tenure.permit_room_at(p, NULL, p.used, p_weight, p_capacity, p_max_holders);
    END IF;
  END IF;
  IF recheck IS NOT NULL THEN recheck := greatest(recheck - at, 0); END IF;
  IF p IS DISTINCT FROM old THEN PERFORM tenure.permit_keep(p); END IF;
END $$;

-- Changes the weight of a hold.
-- code: 1 changed now, 2 it has that weight, 3 busy; -5 more than the capacity, -6 no such hold, -7 a later change arrived before,
-- -8 another hold waits to weigh more.
CREATE OR REPLACE FUNCTION tenure.permit_resize(
  p_name bytea, p_token text, p_weight bigint, p_capacity bigint, p_step bigint, p_presence bigint, p_client bigint,
  p_max_holders integer, p_floor bigint,
  OUT code integer, OUT fence bigint, OUT ttl bigint, OUT n integer, OUT recheck bigint, OUT at bigint
) LANGUAGE plpgsql AS $$
DECLARE
  p tenure.permit;
  old tenure.permit;
  h tenure.permit_hold;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN PERFORM tenure.fresh(); END IF;
  PERFORM pg_advisory_xact_lock(tenure.permit_key(p_name));
  at := tenure.us();
  SELECT * INTO p FROM tenure.permit x WHERE x.name = p_name;
  old := p;
  IF p.ends <= at OR p.lapse <= at OR p.grow_until <= at THEN p := tenure.permit_settle(p, at); END IF;
  IF p_weight < 1 OR p_weight > p_capacity THEN
    code := -5;
  ELSE
    SELECT * INTO h FROM tenure.permit_hold x WHERE x.name = p_name AND x.token = p_token;
    IF NOT FOUND THEN code := -6; ELSIF p_step < h.step THEN code := -7; END IF;
  END IF;
  IF code IS NULL THEN
    fence := h.fence; ttl := h.until - at;
    IF p.grow_token = p_token THEN p.grow_token := NULL; p.grow_until := NULL; END IF;
    IF p_weight = h.weight THEN
      code := 2;
    ELSIF p_weight < h.weight THEN
      code := 1;
    ELSIF p.grow_token IS NOT NULL THEN
      code := -8;
    ELSIF p.used - h.weight + p_weight <= p_capacity THEN
      code := 1; p.fence := greatest(p.fence + 1, at, p_floor + 1); fence := p.fence;
    ELSE
      code := 3; n := -1; fence := NULL; ttl := NULL;
      IF p_presence IS NOT NULL THEN
        n := 0;
        p.grow_token := p_token; p.grow_weight := p_weight; p.grow_capacity := p_capacity; p.grow_until := at + p_presence;
        p.grow_client := p_client; p.grow_called := false;
      END IF;
      recheck := tenure.permit_room_at(p, p_token, p.used - h.weight, p_weight, p_capacity, 2147483647);
      IF recheck IS NOT NULL THEN recheck := greatest(recheck - at, 0); END IF;
    END IF;
    IF code = 1 THEN
      p.used := p.used - h.weight + p_weight;
      UPDATE tenure.permit_hold x SET weight = p_weight, capacity = p_capacity, step = p_step, fence = permit_resize.fence
        WHERE x.name = p_name AND x.token = p_token;
    ELSIF p_step > h.step THEN
      UPDATE tenure.permit_hold x SET step = p_step WHERE x.name = p_name AND x.token = p_token;
    END IF;
  END IF;
  IF p.lapse IS NOT NULL OR p.grow_token IS NOT NULL THEN p := tenure.permit_serve(p, at, NULL, p_max_holders, p_floor); END IF;
  IF p IS DISTINCT FROM old THEN PERFORM tenure.permit_keep(p); END IF;
END $$;

-- Those of the holds whose rows no other transaction keeps locked, by their tokens. They are locked then.
CREATE OR REPLACE FUNCTION tenure.permit_lockable(p_names bytea[], p_tokens text[]) RETURNS text[] LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(array_agg(x.token), '{}') FROM (SELECT h.token FROM tenure.permit_hold h
    JOIN unnest(p_names, p_tokens) AS r(name, token) ON h.name = r.name AND h.token = r.token FOR NO KEY UPDATE OF h SKIP LOCKED) x
$$;

-- For each hold what is left of its lease, in order; nothing for one that is lost. Without p_waits -1 for one whose row another
-- transaction keeps locked; with it, one such row fails all.
CREATE OR REPLACE FUNCTION tenure.permit_renew(p_names bytea[], p_tokens text[], p_ttl bigint, p_waits boolean)
RETURNS TABLE (remaining bigint) LANGUAGE plpgsql AS $$
DECLARE
  t bigint := tenure.us();
  free text[] := CASE WHEN p_waits THEN p_tokens ELSE tenure.permit_lockable(p_names, p_tokens) END;
BEGIN
  RETURN QUERY
    WITH r AS (SELECT * FROM unnest(p_names, p_tokens) WITH ORDINALITY AS r(name, token, ord)),
    u AS (UPDATE tenure.permit_hold h SET until = greatest(h.until, t + p_ttl) FROM r
      WHERE h.name = r.name AND h.token = r.token AND h.until > t AND (p_waits OR h.token = ANY (free))
      RETURNING r.ord, h.until - t AS remaining)
    SELECT CASE WHEN p_waits OR r.token = ANY (free) THEN u.remaining
        WHEN EXISTS (SELECT FROM tenure.permit_hold h WHERE h.name = r.name AND h.token = r.token) THEN -1 END
      FROM r LEFT JOIN u USING (ord) ORDER BY r.ord;
END $$;

-- Ends a hold, and serves the waiters that fit now. The hold is that of the token, or the one with the fence. 1 it was held, 0 it was not.
CREATE OR REPLACE FUNCTION tenure.permit_end(p_name bytea, p_token text, p_fence bigint, p_max_holders integer, p_floor bigint)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  at bigint;
  p tenure.permit;
  old tenure.permit;
  weighed bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN PERFORM tenure.fresh(); END IF;
  PERFORM pg_advisory_xact_lock(tenure.permit_key(p_name));
  at := tenure.us();
  SELECT * INTO p FROM tenure.permit x WHERE x.name = p_name;
  IF NOT FOUND THEN RETURN 0; END IF;
  IF p_token IS NOT NULL AND p.ends > at AND p.lapse IS NULL AND p.grow_until IS NULL THEN
    -- The usual case in one step: no other client waits, and no lease has ended.
    WITH ended AS (DELETE FROM tenure.permit_hold h WHERE h.name = p_name AND h.token = p_token RETURNING h.weight)
    UPDATE tenure.permit x SET used = x.used - ended.weight, holders = x.holders - 1, ends = CASE WHEN x.holders > 1 THEN x.ends END
      FROM ended WHERE x.name = p_name;
    RETURN FOUND::integer;
  END IF;
  old := p;
  IF p.ends <= at OR p.lapse <= at OR p.grow_until <= at THEN p := tenure.permit_settle(p, at); END IF;
  IF p_token IS NULL THEN
    SELECT h.token INTO p_token FROM tenure.permit_hold h WHERE h.name = p_name AND h.fence = p_fence;
  END IF;
  DELETE FROM tenure.permit_hold h WHERE h.name = p_name AND h.token = p_token RETURNING h.weight INTO weighed;
  IF weighed IS NOT NULL THEN
    p.used := p.used - weighed; p.holders := p.holders - 1;
    IF p.holders = 0 THEN p.ends := NULL; END IF;
    IF p.grow_token = p_token THEN p.grow_token := NULL; p.grow_until := NULL; END IF;
  END IF;
  IF p.lapse IS NOT NULL OR p.grow_token IS NOT NULL THEN p := tenure.permit_serve(p, at, NULL, p_max_holders, p_floor); END IF;
  IF p IS DISTINCT FROM old THEN PERFORM tenure.permit_keep(p); END IF;
  RETURN (weighed IS NOT NULL)::integer;
END $$;

-- Undoes every request of the token, and refuses those that arrive later.
CREATE OR REPLACE FUNCTION tenure.permit_abandon(p_name bytea, p_token text, p_for bigint, p_max_holders integer, p_floor bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE t bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN PERFORM tenure.fresh(); END IF;
  PERFORM pg_advisory_xact_lock(tenure.permit_key(p_name));
  t := tenure.us();
  INSERT INTO tenure.permit_tombstone VALUES (p_name, p_token, t + p_for)
    ON CONFLICT (name, token) DO UPDATE SET until = excluded.until;
  -- Rounded up: of many abandonments one writes the row.
  UPDATE tenure.permit x SET graves = t + p_for + 10000000 WHERE x.name = p_name AND x.graves < t + p_for;
  DELETE FROM tenure.permit_tombstone x WHERE x.ctid = ANY (ARRAY(
    SELECT y.ctid FROM tenure.permit_tombstone y WHERE y.until <= t LIMIT 8 FOR UPDATE SKIP LOCKED));
  DELETE FROM tenure.permit_waiter x WHERE x.name = p_name AND x.token = p_token;
  PERFORM tenure.permit_end(p_name, p_token, NULL, p_max_holders, p_floor);
END $$;

-- The weight of all holds, the number of waiters, and the first p_most holders in order of their fences. At least one row, without a
-- holder if there is none.
CREATE OR REPLACE FUNCTION tenure.permit_inspect(p_name bytea, p_most bigint, OUT used bigint, OUT waiters bigint, OUT weight bigint,
  OUT capacity bigint, OUT fence bigint, OUT held_for bigint, OUT remaining bigint, OUT label bytea)
RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE t bigint := tenure.us();
BEGIN
  RETURN QUERY
    WITH live AS MATERIALIZED (SELECT * FROM tenure.permit_hold x WHERE x.name = p_name AND x.until > t)
    SELECT s.used, s.waiters, h.weight, h.capacity, h.fence, t - h.since, h.until - t, h.label
      FROM (SELECT (SELECT coalesce(sum(x.weight), 0)::bigint FROM live x) AS used,
        (SELECT count(*) FROM tenure.permit_waiter w WHERE w.name = p_name AND w.present > t) AS waiters) s
      LEFT JOIN (SELECT * FROM live x ORDER BY x.fence LIMIT p_most) h ON true
      ORDER BY h.fence;
END $$;

-- Rights: as for the functions of locks.
DO $$
DECLARE f record;
BEGIN
  FOR f IN SELECT p.oid::regprocedure AS signature, p.proname FROM pg_proc p
    WHERE p.pronamespace = 'tenure'::regnamespace AND p.proname LIKE 'permit\_%' LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f.signature);
    CONTINUE WHEN f.proname IN ('permit_key', 'permit_settle', 'permit_serve', 'permit_keep', 'permit_room_at',
      'permit_sweep', 'permit_lockable');
    EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER', f.signature);
    EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, pg_temp', f.signature);
    EXECUTE format('ALTER FUNCTION %s SET lock_timeout = ''3s''', f.signature);
  END LOOP;
END $$;
-- A renewal that waits longer is repeated without the rows that others keep locked.
ALTER FUNCTION tenure.permit_renew SET lock_timeout = '200ms';
