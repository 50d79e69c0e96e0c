-- Delay queues. One timeline for due times and ends of leases, one row a message; any receive does all the work.
--
-- Times and spans are microseconds. Functions whose names begin with queue_ are the driver's; push is for all users.
-- Each is one transaction, or part of the caller's, under READ COMMITTED: every statement of a function sees what was
-- committed before it began.
--
-- Locks are taken in this order, so that there is no deadlock: names of messages, rows without a concurrency key, keys,
-- rows with a key. Names and keys are advisory locks, taken in the order of their hashes. A receive takes rows and keys too, but
-- waits for none: what another transaction has, it leaves to that one.
--
-- A wake-up is sent when a push is made, and arrives with its commit. A client that began to watch between the two is not notified: the message
-- is found when that one asks next.
--
-- Tables are logged: what a push stored survives a crash. Only who watches is not, and is said again by every client.

-- Queues that are paused or limited. The others have no row: a push makes none, so the first one, in a transaction that stays
-- open, blocks no other.
CREATE TABLE tenure.queue (
  name       bytea   PRIMARY KEY,
  paused     boolean NOT NULL DEFAULT false,
  in_flight  bigint  NOT NULL DEFAULT 0, -- how many at once; 0: no limit
  deliveries bigint  NOT NULL DEFAULT 0, -- how many in a span; 0: no limit
  per        bigint  NOT NULL DEFAULT 0, -- that span
  every      bigint  NOT NULL DEFAULT 0, -- from one delivery to the next
  full_at    bigint  NOT NULL DEFAULT 0  -- when the bucket of the rate is full again
);

-- Its rows are deleted and moved along the index all the time: vacuumed when a fiftieth has changed, and not slowed down. Pages
-- that became empty at the end are kept, since giving them back would lock all clients out for a moment. It has no CHECK: the server
-- reads those anew for each statement that writes, a tenth of a receive. What a message may have is checked by queue_push.
CREATE TABLE tenure.message (
  number     bigint   PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  queue      bytea    NOT NULL,           -- its name, 1 to 256 bytes
  state      smallint NOT NULL DEFAULT 0, -- 0 waiting, 1 leased, 2 held by its key, 3 dead
  at         bigint   NOT NULL,           -- when it is due, its lease ends, or it died
  pushed     bigint   NOT NULL,
  delivery   bigint   NOT NULL DEFAULT 0, -- the fence of the latest delivery; with the number its receipt
  attempt    integer  NOT NULL DEFAULT 0,
  attempts   integer  NOT NULL,           -- 1 to 10000
  cause      smallint NOT NULL DEFAULT 0, -- first, retried, returned, parked, expired, redriven
  doom       smallint,                    -- exhausted, rejected, expired, damaged
  expires    bigint,                      -- until when it may be delivered
  known_for  bigint   NOT NULL DEFAULT 0, -- for how long its name stays known after it was acknowledged
  name       bytea,                       -- 1 to 128 bytes
  key        bytea,                       -- as long
  lock       bytea,                       -- 1 to 512 bytes
  turn_lock  bytea, turn_token text, turn_fence bigint,
  reason     bytea,
  recurrence bytea,
  payload    bytea    NOT NULL            -- a MiB at most
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);

CREATE INDEX message_turn ON tenure.message (queue, at, number) WHERE state <= 1;
CREATE INDEX message_dead ON tenure.message (queue, at, number) WHERE state = 3;
CREATE INDEX message_held ON tenure.message (queue, key, at, number) WHERE state = 2;
CREATE UNIQUE INDEX message_key ON tenure.message (queue, key) WHERE state = 1 AND key IS NOT NULL;
CREATE UNIQUE INDEX message_name ON tenure.message (queue, name) WHERE name IS NOT NULL;

-- Names of acknowledged messages that are still known.
CREATE TABLE tenure.settled (
  queue bytea NOT NULL, name bytea NOT NULL, until bigint NOT NULL, PRIMARY KEY (queue, name)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX settled_until ON tenure.settled (until);

-- Fences of deliveries. Without a row in the table beside it, which is unlogged, the server has crashed or is a promoted
-- standby, where the sequence may have fallen back: then it continues from the clock.
CREATE SEQUENCE tenure.delivery;
CREATE UNLOGGED TABLE tenure.delivery_epoch (one boolean PRIMARY KEY DEFAULT true CHECK (one));

-- Clients that listen for a queue. Where there is none, a push sends no notification.
CREATE UNLOGGED TABLE tenure.watcher (
  queue bytea, client bigint, until bigint NOT NULL, PRIMARY KEY (queue, client)
) WITH (fillfactor = 50);

-- The clock; now() is the begin of the transaction.
CREATE OR REPLACE FUNCTION tenure.us() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- What the queues' clock has to be ahead of the server's, since that was set back; and a time that it has reached. Receives
-- that hand something out write that down, ten times a second at most: so far a step back is seen, and time does not advance until then.
CREATE TABLE tenure.queue_clock (
  one boolean PRIMARY KEY DEFAULT true CHECK (one), shift bigint NOT NULL, reached bigint NOT NULL
) WITH (fillfactor = 10);
INSERT INTO tenure.queue_clock (shift, reached) VALUES (0, 0);

-- The queues' clock.
CREATE FUNCTION tenure.queue_now() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE c tenure.queue_clock;
BEGIN
  SELECT * INTO c FROM tenure.queue_clock;
  RETURN greatest(tenure.us() + c.shift, c.reached);
END $$;

CREATE FUNCTION tenure.queue_tick(p_writes boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE c tenure.queue_clock; t bigint;
BEGIN
  SELECT * INTO c FROM tenure.queue_clock;
  t := tenure.us() + c.shift;
  IF t >= c.reached AND (NOT p_writes OR t <= c.reached + 100000) THEN RETURN; END IF;
  SELECT * INTO c FROM tenure.queue_clock FOR UPDATE SKIP LOCKED; -- else another transaction does it
  IF NOT FOUND THEN RETURN; END IF;
  t := tenure.us() + c.shift;
  UPDATE tenure.queue_clock SET shift = c.shift + greatest(c.reached - t, 0), reached = greatest(t, c.reached);
END $$;

-- Locks until the end of the transaction: messages' names, keys.
CREATE FUNCTION tenure.queue_lock(p_class integer, p_queue bytea, p_names bytea[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE h integer;
BEGIN
  FOR h IN SELECT DISTINCT hashtext(encode(p_queue, 'hex') || ' ' || encode(n, 'hex')) FROM unnest(p_names) n WHERE n IS NOT NULL ORDER BY 1 LOOP
    PERFORM pg_advisory_xact_lock(p_class, h);
  END LOOP;
END $$;
CREATE FUNCTION tenure.queue_try_key(p_queue bytea, p_key bytea) RETURNS boolean LANGUAGE sql VOLATILE AS
$$ SELECT pg_try_advisory_xact_lock(1952804171, hashtext(encode(p_queue, 'hex') || ' ' || encode(p_key, 'hex'))) $$;

-- 1 scheduled, 2 ready, 3 in flight, 4 dead.
CREATE FUNCTION tenure.queue_standing(p_state smallint, p_at bigint, t bigint) RETURNS integer LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE WHEN p_state = 3 THEN 4 WHEN p_state = 2 OR p_at <= t THEN 2 WHEN p_state = 1 THEN 3 ELSE 1 END $$;

-- Wakes those who watch a queue.
CREATE FUNCTION tenure.queue_tell(p_queue bytea) RETURNS void LANGUAGE sql VOLATILE AS $$
  SELECT pg_notify('tenure_' || to_hex(w.client), 'q ' || encode(p_queue, 'hex'))
    FROM tenure.watcher w WHERE w.queue = p_queue AND w.until > tenure.queue_now()
      AND NOT EXISTS (SELECT FROM tenure.queue q WHERE q.name = p_queue AND q.paused)
$$;

-- Remembers for a minute that a client watches: it receives every 20 s. Writes no more than twice a minute.
CREATE FUNCTION tenure.queue_watch(p_queue bytea, p_client bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE t bigint := tenure.queue_now();
BEGIN
  IF EXISTS (SELECT FROM tenure.watcher w WHERE w.queue = p_queue AND w.client = p_client AND w.until > t + 30000000) THEN RETURN; END IF;
  DELETE FROM tenure.watcher w USING (
    SELECT o.queue, o.client FROM tenure.watcher o WHERE o.queue = p_queue AND o.until <= t AND o.client <> p_client FOR UPDATE SKIP LOCKED
  ) o WHERE w.queue = o.queue AND w.client = o.client;
  INSERT INTO tenure.watcher AS w (queue, client, until) VALUES (p_queue, p_client, t + 60000000)
    ON CONFLICT (queue, client) DO UPDATE SET until = excluded.until;
END $$;

-- Makes the first message that a key holds back available, if none of the key is in flight. Needs the key's lock. Returns whether
-- one did.
CREATE FUNCTION tenure.queue_free(p_queue bytea, p_key bytea) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF p_key IS NULL OR EXISTS (SELECT FROM tenure.message m WHERE m.queue = p_queue AND m.key = p_key AND m.state = 1) THEN
    RETURN false;
  END IF;
  UPDATE tenure.message m SET state = 0 WHERE m.number = (
    SELECT o.number FROM tenure.message o WHERE o.queue = p_queue AND o.key = p_key AND o.state = 2 ORDER BY o.at, o.number LIMIT 1);
  RETURN FOUND;
END $$;

-- Moves a message to the dead letters, or lets it wait a minute where they are full. 2 it is dead, 3 it waits.
CREATE FUNCTION tenure.queue_bury(m tenure.message, p_doom integer, p_reason bytea, p_most bigint) RETURNS smallint
LANGUAGE plpgsql AS $$
DECLARE
  t bigint := tenure.queue_now();
  full_up boolean := EXISTS (SELECT FROM tenure.message d WHERE d.queue = m.queue AND d.state = 3 OFFSET greatest(p_most - 1, 0));
BEGIN
  UPDATE tenure.message d SET doom = p_doom, reason = p_reason, attempt = m.attempt,
    state = CASE WHEN full_up THEN 0 ELSE 3 END, at = CASE WHEN full_up THEN t + 60000000 ELSE t END WHERE d.number = m.number;
  PERFORM tenure.queue_free(m.queue, m.key);
  RETURN CASE WHEN full_up THEN 3 ELSE 2 END;
END $$;

-- Stores messages, all or none. A column without any value may be null. One row for each message, in order: 0 stored,
-- 1 stored in place of another, 11 to 15 not stored, since its name is known: scheduled, ready, in flight, dead, settled.
CREATE FUNCTION tenure.queue_push(
  p_queue bytea, p_payloads bytea[], p_delays bigint[], p_attempts integer[], p_parked boolean[], p_names bytea[],
  p_known_for bigint[], p_replace boolean[], p_keys bytea[], p_locks bytea[], p_ttls bigint[], p_recurrences bytea[]
) RETURNS TABLE (r_answer integer, r_number bigint) LANGUAGE plpgsql AS $$
DECLARE
  most CONSTANT integer := 1048576;
  longest CONSTANT bigint := 315360000000000;
  t bigint;
  n record; m record;
  soonest bigint;
  wrong text;
BEGIN
  IF coalesce(length(p_queue), 0) NOT BETWEEN 1 AND 256 THEN
    RAISE EXCEPTION 'the name of a queue has 1 to 256 bytes' USING ERRCODE = 'check_violation';
  END IF;
  SELECT CASE WHEN coalesce(length(i.payload), most + 1) > most THEN 'payload'
      WHEN coalesce(i.delay, -1) NOT BETWEEN 0 AND longest THEN 'delay' WHEN coalesce(i.attempts, 0) NOT BETWEEN 1 AND 10000 THEN 'attempts'
      WHEN length(i.name) NOT BETWEEN 1 AND 128 THEN 'name' WHEN i.known_for NOT BETWEEN 0 AND longest THEN 'known_for'
      WHEN length(i.key) NOT BETWEEN 1 AND 128 THEN 'key' WHEN length(i.lock) NOT BETWEEN 1 AND 512 THEN 'lock'
      WHEN i.ttl NOT BETWEEN 1 AND longest THEN 'ttl' END INTO wrong
    FROM unnest(p_payloads, p_delays, p_attempts, p_names, p_known_for, p_keys, p_locks, p_ttls)
      AS i(payload, delay, attempts, name, known_for, key, lock, ttl)
    WHERE coalesce(length(i.payload), most + 1) > most OR coalesce(i.delay, -1) NOT BETWEEN 0 AND longest
      OR coalesce(i.attempts, 0) NOT BETWEEN 1 AND 10000 OR length(i.name) NOT BETWEEN 1 AND 128
      OR i.known_for NOT BETWEEN 0 AND longest OR length(i.key) NOT BETWEEN 1 AND 128 OR length(i.lock) NOT BETWEEN 1 AND 512
      OR i.ttl NOT BETWEEN 1 AND longest LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'the % of a message is null or out of range: a payload has at most % bytes, attempts are 1 to 10000, a name and a '
      'key have 1 to 128 bytes, a lock 1 to 512, delay and known_for are 0 to 3650 days, a ttl 1 microsecond to 3650 days', wrong, most
      USING ERRCODE = 'check_violation';
  END IF;
  IF p_names IS NOT NULL THEN
    PERFORM tenure.fresh();
    -- Before anything is read: of two pushes of one name at once, the second has to see the first.
    PERFORM tenure.queue_lock(1952804174, p_queue, p_names);
    IF true = ANY (p_replace) THEN
      t := tenure.queue_now();
      PERFORM FROM tenure.message o WHERE o.queue = p_queue AND o.name = ANY (p_names) AND o.key IS NULL
        AND tenure.queue_standing(o.state, o.at, t) <= 2 ORDER BY o.number FOR UPDATE;
      PERFORM tenure.queue_lock(1952804171, p_queue, array_agg(o.key)) FROM tenure.message o
        WHERE o.queue = p_queue AND o.name = ANY (p_names) AND o.key IS NOT NULL;
    END IF;
  END IF;
  -- Behind the waits for locks: delays count from here.
  t := tenure.queue_now();
  SELECT min(d) INTO soonest FROM unnest(p_delays) d;
  -- A message that is due later is seen in time by the receives that every watcher repeats.
  IF soonest < 60000000 THEN PERFORM tenure.queue_tell(p_queue); END IF;
  IF p_names IS NULL THEN
    RETURN QUERY INSERT INTO tenure.message AS s (queue, at, pushed, attempts, cause, key, lock, expires, recurrence, payload)
      SELECT p_queue, t + i.delay, t, i.attempts, CASE WHEN i.parked THEN 3 ELSE 0 END, i.key, i.lock, t + i.delay + i.ttl,
        i.recurrence, i.payload
      FROM unnest(p_payloads, p_delays, p_attempts, p_parked, p_keys, p_locks, p_ttls, p_recurrences)
        WITH ORDINALITY AS i(payload, delay, attempts, parked, key, lock, ttl, recurrence, ord)
      ORDER BY i.ord RETURNING 0, s.number;
    RETURN;
  END IF;
  FOR n IN SELECT * FROM unnest(p_payloads, p_delays, p_attempts, p_parked, p_names, p_known_for, p_replace, p_keys, p_locks,
      p_ttls, p_recurrences)
      AS i(payload, delay, attempts, parked, name, known_for, replace, key, lock, ttl, recurrence) LOOP
    r_answer := 0;
    r_number := NULL;
    IF n.name IS NOT NULL THEN
      SELECT o.number, o.key, tenure.queue_standing(o.state, o.at, t) AS standing INTO m
        FROM tenure.message o WHERE o.queue = p_queue AND o.name = n.name;
      IF FOUND AND n.replace AND m.standing <= 2 THEN
        DELETE FROM tenure.message o WHERE o.number = m.number AND tenure.queue_standing(o.state, o.at, t) <= 2;
        r_answer := CASE WHEN FOUND THEN 1 ELSE 13 END; -- or a receive was faster
        PERFORM tenure.queue_free(p_queue, m.key);
      ELSIF FOUND THEN
        r_answer := 10 + m.standing;
      ELSIF EXISTS (SELECT FROM tenure.settled s WHERE s.queue = p_queue AND s.name = n.name AND s.until > t) THEN
        r_answer := 15;
      END IF;
    END IF;
    IF r_answer < 10 THEN
      INSERT INTO tenure.message AS s (queue, at, pushed, attempts, cause, name, known_for, key, lock, expires, recurrence, payload)
        VALUES (p_queue, t + n.delay, t, n.attempts, CASE WHEN n.parked THEN 3 ELSE 0 END, n.name, coalesce(n.known_for, 0), n.key,
          n.lock, t + n.delay + n.ttl, n.recurrence, n.payload)
        RETURNING s.number INTO r_number;
    END IF;
    RETURN NEXT;
  END LOOP;
END $$;

-- Stores a message, in the caller's own transaction: it is there if that is committed, and was never there if not. For a name
-- that is known already nothing is stored, and null is returned.
CREATE FUNCTION tenure.push(
  queue text, payload bytea, delay interval DEFAULT '0', id text DEFAULT NULL, known_for interval DEFAULT '0',
  key text DEFAULT NULL, lock text DEFAULT NULL, attempts integer DEFAULT 10, ttl interval DEFAULT NULL
) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT r_number FROM tenure.queue_push(convert_to($1, 'UTF8'), ARRAY[$2], ARRAY[(extract(epoch FROM $3) * 1000000)::bigint],
    ARRAY[$8], NULL, CASE WHEN $4 IS NULL THEN NULL ELSE ARRAY[convert_to($4, 'UTF8')] END,
    ARRAY[coalesce((extract(epoch FROM $5) * 1000000)::bigint, -1)], NULL, ARRAY[convert_to($6, 'UTF8')], ARRAY[convert_to($7, 'UTF8')],
    ARRAY[(extract(epoch FROM $9) * 1000000)::bigint], NULL)
$$;

-- Ends deliveries. How: 0 done, 1 retry, 2 return, 3 park, 4 dead, 5 again on its schedule. Answers: 0 stale, 1 done, 2 dead,
-- 3 it waits for a place among the dead.
CREATE FUNCTION tenure.queue_settle(
  p_queue bytea, p_limited boolean, p_numbers bigint[], p_deliveries bigint[], p_hows smallint[], p_delays bigint[],
  p_reasons bytea[], p_recurrences bytea[], p_dead bigint
) RETURNS smallint[] LANGUAGE plpgsql AS $$
DECLARE
  t bigint;
  answers smallint[];
  gone_numbers bigint[]; gone_deliveries bigint[];
  m tenure.message;
  tell boolean := p_limited;
BEGIN
  IF 0 = ALL (p_hows) THEN
    -- By their numbers, with no condition that another index has: whatever is known of the table, that is the shortest way. A
    -- delivery is never that of two messages.
    WITH gone AS (
      DELETE FROM tenure.message o WHERE o.number = ANY (p_numbers) AND o.queue || '' = p_queue AND o.state + 0 = 1
          AND o.delivery = ANY (p_deliveries) AND coalesce(o.key) IS NULL AND o.known_for = 0
        RETURNING o.number, o.delivery)
    SELECT array_agg(gone.number), array_agg(gone.delivery) INTO gone_numbers, gone_deliveries FROM gone;
    IF cardinality(gone_numbers) = cardinality(p_numbers) THEN
      answers := array_fill(1::smallint, ARRAY[cardinality(p_numbers)]);
      IF tell THEN PERFORM tenure.queue_tell(p_queue); END IF;
      RETURN answers;
    END IF;
    -- Of a delivery that is settled twice, the first is answered.
    WITH first AS (
      SELECT min(r.ord) AS ord FROM unnest(p_numbers, p_deliveries) WITH ORDINALITY AS r(number, delivery, ord)
        JOIN unnest(gone_numbers, gone_deliveries) AS g(number, delivery) USING (number, delivery) GROUP BY number, delivery)
    SELECT array_agg(CASE WHEN f.ord IS NULL THEN 0 ELSE 1 END ORDER BY r.ord)::smallint[] INTO answers
      FROM unnest(p_numbers) WITH ORDINALITY AS r(number, ord) LEFT JOIN first f USING (ord);
  ELSE
    answers := array_fill(0::smallint, ARRAY[cardinality(p_numbers)]);
  END IF;
  -- In the order of locks: a push that replaces a message holds its row while it waits for a key.
  PERFORM FROM tenure.message o WHERE o.number = ANY (p_numbers) AND o.queue = p_queue AND o.key IS NULL ORDER BY o.number FOR UPDATE;
  -- The end of a delivery lets the next message of its key go, which one transaction at a time may decide.
  PERFORM tenure.queue_lock(1952804171, p_queue, array_agg(o.key)) FROM tenure.message o
    WHERE o.number = ANY (p_numbers) AND o.queue = p_queue AND o.key IS NOT NULL;
  FOR i IN 1 .. cardinality(p_numbers) LOOP
    CONTINUE WHEN answers[i] <> 0;
    SELECT * INTO m FROM tenure.message o WHERE o.number = p_numbers[i] AND o.queue = p_queue AND o.state = 1
      AND o.delivery = p_deliveries[i] FOR UPDATE;
    CONTINUE WHEN NOT FOUND;
    -- Behind the wait for the row: a delay counts from here.
    t := tenure.queue_now();
    IF p_hows[i] = 0 THEN
      DELETE FROM tenure.message o WHERE o.number = m.number;
      IF m.known_for > 0 AND m.name IS NOT NULL THEN
        INSERT INTO tenure.settled AS s (queue, name, until) VALUES (p_queue, m.name, t + m.known_for)
          ON CONFLICT (queue, name) DO UPDATE SET until = excluded.until;
        DELETE FROM tenure.settled s USING (
          SELECT o.queue, o.name FROM tenure.settled o WHERE o.until < t ORDER BY o.until LIMIT 8 FOR UPDATE SKIP LOCKED
        ) o WHERE s.queue = o.queue AND s.name = o.name;
      END IF;
      answers[i] := 1;
    ELSIF p_hows[i] = 4 OR p_hows[i] = 1 AND m.attempt >= m.attempts THEN
      answers[i] := tenure.queue_bury(m, CASE WHEN p_hows[i] = 4 THEN 1 ELSE 0 END, p_reasons[i], p_dead);
    ELSE
      UPDATE tenure.message o SET state = 0, at = t + p_delays[i],
        cause = (ARRAY[1, 2, 3, 0, 0])[p_hows[i]],
        attempt = CASE p_hows[i] WHEN 1 THEN m.attempt WHEN 5 THEN 0 ELSE greatest(m.attempt - 1, 0) END,
        reason = CASE WHEN p_hows[i] IN (1, 5) THEN p_reasons[i] ELSE m.reason END,
        expires = CASE WHEN p_hows[i] = 5 THEN NULL ELSE m.expires END,
        recurrence = CASE WHEN p_hows[i] = 5 THEN p_recurrences[i] ELSE m.recurrence END
        WHERE o.number = m.number;
      answers[i] := 1;
      tell := tell OR p_delays[i] < 20000000;
    END IF;
    IF m.key IS NOT NULL THEN
      PERFORM tenure.queue_free(p_queue, m.key);
      tell := true;
    END IF;
  END LOOP;
  IF tell THEN PERFORM tenure.queue_tell(p_queue); END IF;
  RETURN answers;
END $$;

-- Ensures that fences continue above the floor, and above all of before a crash or a promotion.
CREATE FUNCTION tenure.queue_fences(p_floor bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM tenure.delivery_epoch) AND (SELECT d.last_value FROM tenure.delivery d) >= p_floor THEN RETURN; END IF;
  PERFORM pg_advisory_xact_lock(1952804166, 0);
  -- Looked at again under the lock: of the clients that come after a crash, one skips the numbers.
  IF NOT EXISTS (SELECT FROM tenure.delivery_epoch) THEN
    PERFORM setval('tenure.delivery', greatest((SELECT d.last_value FROM tenure.delivery d) + 1000000, tenure.us()));
    PERFORM setval('tenure.message_number_seq', (SELECT s.last_value FROM tenure.message_number_seq s) + 100000);
    INSERT INTO tenure.delivery_epoch DEFAULT VALUES;
  END IF;
  IF (SELECT d.last_value FROM tenure.delivery d) < p_floor THEN PERFORM setval('tenure.delivery', p_floor); END IF;
END $$;

-- How many deliveries the limits of a queue allow, and when they allow one.
CREATE FUNCTION tenure.queue_room(q tenure.queue, t bigint, OUT room bigint, OUT room_at bigint) LANGUAGE plpgsql AS $$
DECLARE
  busy bigint;
  tokens bigint;
BEGIN
  room := 1000000;
  room_at := 0;
  IF q.deliveries > 0 THEN
    tokens := greatest(q.deliveries - (greatest(q.full_at - t, 0) + q.every - 1) / q.every, 0);
    room := least(room, tokens);
    IF tokens = 0 THEN room_at := q.full_at - q.every * (q.deliveries - 1); END IF;
  END IF;
  IF q.in_flight > 0 THEN
    SELECT count(*) INTO busy FROM tenure.message m WHERE m.queue = q.name AND m.state = 1 AND m.at > t;
    room := least(room, greatest(q.in_flight - busy, 0));
    IF busy >= q.in_flight THEN
      room_at := greatest(room_at, (SELECT m.at FROM tenure.message m WHERE m.queue = q.name AND m.state = 1 AND m.at > t
        ORDER BY m.at OFFSET busy - q.in_flight LIMIT 1));
    END IF;
  END IF;
END $$;

-- Settles, then hands out what is due: a row for each delivery, in the order of their fences, and one at the end with the answers to
-- the settlements, when to ask again (in so many us; 0 at once, -1 when woken, -2 the same, since the queue is paused) and what
-- was repaired. p_max 0 settles only. p_client, if not null, watches.
CREATE FUNCTION tenure.queue_turn(
  p_queue bytea, p_client bigint, p_numbers bigint[], p_deliveries bigint[], p_hows smallint[], p_delays bigint[],
  p_reasons bytea[], p_recurrences bytea[], p_max integer, p_lease bigint, p_dead bigint, p_floor bigint
) RETURNS TABLE (
  r_number bigint, r_name bytea, r_payload bytea, r_attempt integer, r_attempts integer, r_cause smallint, r_delivery bigint,
  r_late bigint, r_age bigint, r_key bytea, r_lock bytea, r_turn_lock bytea, r_turn_token text, r_turn_fence bigint,
  r_reason bytea, r_recurrence bytea,
  r_answers smallint[], r_next bigint, r_expired integer, r_buried integer, r_postponed integer
) LANGUAGE plpgsql AS $$
DECLARE
  looks integer := 500; -- at messages that are not handed out
  q tenure.queue;
  c tenure.queue_clock;
  m tenure.message;
  t bigint;
  asked bigint; room bigint; room_at bigint := 0; soonest bigint;
  given bigint := 0;
  batch bigint[]; chosen bigint[];
  ats bigint[]; states smallint[]; locks bytea[]; tokens text[]; turns bigint[]; -- of the batch, before it was handed out
  passed bigint[] := '{}';
  busy bytea[] := '{}';
  unusual boolean; ended integer; n bigint; fate smallint;
  answers smallint[];
  expired integer := 0; buried integer := 0; postponed integer := 0;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN PERFORM tenure.fresh(); END IF;
  IF p_client IS NOT NULL THEN PERFORM tenure.queue_watch(p_queue, p_client); END IF;
  SELECT * INTO q FROM tenure.queue o WHERE o.name = p_queue;
  -- In this order: the same call hands out what a settlement made due, or made room for.
  IF p_numbers IS NOT NULL THEN
    answers := tenure.queue_settle(p_queue, coalesce(q.in_flight > 0, false), p_numbers, p_deliveries, p_hows, p_delays, p_reasons, p_recurrences, p_dead);
  END IF;
  room := p_max;
  IF p_max = 0 OR q.paused THEN
    RETURN QUERY SELECT NULL::bigint, NULL::bytea, NULL::bytea, 0, 0, 0::smallint, 0::bigint, 0::bigint, 0::bigint, NULL::bytea,
      NULL::bytea, NULL::bytea, NULL::text, NULL::bigint, NULL::bytea, NULL::bytea,
      answers, CASE WHEN q.paused THEN -2 ELSE -1 END::bigint, 0, 0, 0;
    RETURN;
  END IF;
  IF NOT EXISTS (SELECT FROM tenure.delivery_epoch) OR (SELECT d.last_value FROM tenure.delivery d) < p_floor THEN
    PERFORM tenure.queue_fences(p_floor);
  END IF;
  IF q.in_flight > 0 OR q.deliveries > 0 THEN
    -- One receive at a time: two of them would use the same room.
    SELECT * INTO q FROM tenure.queue o WHERE o.name = p_queue FOR UPDATE;
  END IF;
  SELECT * INTO c FROM tenure.queue_clock;
  t := tenure.us() + c.shift; -- a variable: a volatile call in the condition would be no bound of the index
  IF t < c.reached THEN
    PERFORM tenure.queue_tick(false);
    t := tenure.queue_now();
  END IF;
  IF q.in_flight > 0 OR q.deliveries > 0 THEN room := least(room, (tenure.queue_room(q, t)).room); END IF;
  WHILE room > 0 AND looks > 0 LOOP
    asked := least(room, looks);
    -- In the order of the index.
    SELECT array_agg(d.number), array_agg(d.at), array_agg(d.state), array_agg(d.turn_lock), array_agg(d.turn_token),
        array_agg(d.turn_fence), bool_or(d.unusual), count(*) FILTER (WHERE d.state = 1)
      INTO batch, ats, states, locks, tokens, turns, unusual, ended
      FROM (SELECT o.number, o.at, o.state, o.turn_lock, o.turn_token, o.turn_fence, o.key IS NOT NULL
          OR o.attempt >= o.attempts OR o.doom IS NOT NULL OR coalesce(o.expires < t, false) AS unusual
        FROM tenure.message o WHERE o.queue = p_queue AND o.state <= 1 AND o.at <= t AND o.number <> ALL (passed)
        ORDER BY o.at, o.number LIMIT asked FOR UPDATE SKIP LOCKED) d;
    EXIT WHEN batch IS NULL;
    chosen := batch;
    IF NOT unusual THEN
      expired := expired + ended;
    ELSE
      chosen := '{}';
      FOREACH n IN ARRAY batch LOOP
        SELECT * INTO m FROM tenure.message o WHERE o.number = n;
        IF m.key IS NOT NULL AND NOT tenure.queue_try_key(p_queue, m.key) THEN
          passed := passed || n; -- another transaction is about this key: it decides
          looks := looks - 1;
          CONTINUE;
        END IF;
        expired := expired + (m.state = 1)::integer;
        IF m.doom IS NOT NULL OR m.attempt >= m.attempts OR m.expires < t THEN
          looks := looks - 1;
          fate := tenure.queue_bury(m, coalesce(m.doom, CASE WHEN m.attempt >= m.attempts THEN 0 ELSE 2 END),
            CASE WHEN m.state = 1 THEN convert_to('the lease of its last delivery ended', 'UTF8') ELSE m.reason END, p_dead);
          buried := buried + (fate = 2)::integer;
          postponed := postponed + (fate = 3)::integer;
        ELSIF m.key = ANY (busy) OR m.key IS NOT NULL AND EXISTS (
            SELECT FROM tenure.message o WHERE o.queue = p_queue AND o.key = m.key AND o.state = 1 AND o.number <> n) THEN
          looks := looks - 1;
          UPDATE tenure.message o SET state = 2 WHERE o.number = n;
        ELSE
          chosen := chosen || n;
          IF m.key IS NOT NULL THEN busy := busy || m.key; END IF;
        END IF;
      END LOOP;
    END IF;
    IF cardinality(chosen) > 0 THEN
      RETURN QUERY
        WITH handed AS (
          UPDATE tenure.message o SET state = 1, at = t + p_lease, delivery = b.fence, attempt = o.attempt + 1,
              turn_lock = NULL, turn_token = NULL, turn_fence = NULL
            FROM (SELECT u.*, nextval('tenure.delivery') AS fence
                FROM unnest(batch, ats, states, locks, tokens, turns) AS u(number, at, state, turn_lock, turn_token, turn_fence)
                WHERE u.number = ANY (chosen) OFFSET 0) b
            WHERE o.number = b.number
            RETURNING o.number, o.name, o.payload, o.attempt, o.attempts,
              CASE WHEN b.state = 1 THEN 4::smallint ELSE o.cause END AS cause, b.fence, b.at, o.pushed, o.key, o.lock,
              b.turn_lock, b.turn_token, b.turn_fence, o.reason, o.recurrence)
        SELECT h.number, h.name, h.payload, h.attempt, h.attempts, h.cause, h.fence, t - h.at, t - h.pushed, h.key, h.lock,
          h.turn_lock, h.turn_token, h.turn_fence, h.reason, h.recurrence, NULL::smallint[], 0::bigint, 0, 0, 0 FROM handed h;
      given := given + cardinality(chosen);
      room := room - cardinality(chosen);
    END IF;
    EXIT WHEN NOT unusual AND cardinality(batch) < asked;
  END LOOP;
  IF given > 0 AND t > c.reached + 100000 THEN PERFORM tenure.queue_tick(true); END IF;
  IF q.deliveries > 0 AND given > 0 THEN
    q.full_at := greatest(q.full_at, t) + q.every * given;
    UPDATE tenure.queue o SET full_at = q.full_at WHERE o.name = p_queue;
  END IF;
  IF given = p_max AND p_max > 1 THEN
    soonest := t; -- as many as were asked for: there are more, most likely, and a client that asks again learns it
  ELSE
    SELECT o.at INTO soonest FROM tenure.message o WHERE o.queue = p_queue AND o.state <= 1 ORDER BY o.at, o.number LIMIT 1;
  END IF;
  IF soonest IS NOT NULL AND (q.in_flight > 0 OR q.deliveries > 0) THEN
    room_at := (tenure.queue_room(q, t)).room_at;
    soonest := greatest(soonest, room_at);
  END IF;
  r_next := CASE
    WHEN soonest IS NULL THEN -1
    WHEN soonest > t THEN soonest - t
    WHEN given = 0 AND buried = 0 AND postponed = 0 AND looks > 0 THEN 10000 -- another transaction has them
    ELSE 0 END;
  RETURN QUERY SELECT NULL::bigint, NULL::bytea, NULL::bytea, 0, 0, 0::smallint, 0::bigint, 0::bigint, 0::bigint, NULL::bytea,
    NULL::bytea, NULL::bytea, NULL::text, NULL::bigint, NULL::bytea, NULL::bytea, answers, r_next, expired, buried, postponed;
END $$;

-- Makes leases last: 1 done, 0 stale.
CREATE FUNCTION tenure.queue_extend(p_queue bytea, p_numbers bigint[], p_deliveries bigint[], p_leases bigint[])
RETURNS smallint[] LANGUAGE plpgsql AS $$
DECLARE
  t bigint := tenure.queue_now();
  answers smallint[] := '{}';
BEGIN
  FOR i IN 1 .. cardinality(p_numbers) LOOP
    -- A lease that has ended is not revived: a receive may be handing the message out.
    UPDATE tenure.message m SET at = greatest(m.at, t + p_leases[i])
      WHERE m.number = p_numbers[i] AND m.queue = p_queue AND m.state = 1 AND m.delivery = p_deliveries[i] AND m.at > t;
    answers := answers || FOUND::integer::smallint;
  END LOOP;
  RETURN answers;
END $$;

-- A message by its name or else its number, with its key and itself locked; null if it is not there.
CREATE FUNCTION tenure.queue_hold(p_queue bytea, p_number bigint, p_name bytea) RETURNS tenure.message LANGUAGE plpgsql AS $$
DECLARE
  m tenure.message; n bigint;
BEGIN
  FOR i IN 1 .. 10 LOOP -- another one may have taken its name meanwhile
    IF p_name IS NULL THEN
      SELECT * INTO m FROM tenure.message o WHERE o.queue = p_queue AND o.number = p_number AND o.name IS NULL;
    ELSE
      SELECT * INTO m FROM tenure.message o WHERE o.queue = p_queue AND o.name = p_name;
    END IF;
    IF NOT FOUND THEN RETURN NULL; END IF;
    -- The key before the row, so that no two wait for each other. The row is read again when both are locked.
    PERFORM tenure.queue_lock(1952804171, p_queue, ARRAY[m.key]);
    n := m.number;
    SELECT * INTO m FROM tenure.message o WHERE o.number = n FOR UPDATE;
    IF FOUND THEN RETURN m; END IF;
  END LOOP;
  RETURN NULL;
END $$;

-- The three answer as queue_standing: 0 it is not there; 1 and 2 it was waiting, and it is done.
CREATE FUNCTION tenure.queue_cancel(p_queue bytea, p_number bigint, p_name bytea) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  m tenure.message := tenure.queue_hold(p_queue, p_number, p_name);
  standing integer := tenure.queue_standing(m.state, m.at, tenure.queue_now());
BEGIN
  IF m.number IS NULL THEN RETURN 0; END IF;
  IF standing > 2 THEN RETURN standing; END IF;
  DELETE FROM tenure.message o WHERE o.number = m.number;
  IF tenure.queue_free(m.queue, m.key) THEN PERFORM tenure.queue_tell(m.queue); END IF;
  RETURN standing;
END $$;

CREATE FUNCTION tenure.queue_reschedule(p_queue bytea, p_number bigint, p_name bytea, p_delay bigint) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
  m tenure.message := tenure.queue_hold(p_queue, p_number, p_name);
  t bigint := tenure.queue_now();
  standing integer := tenure.queue_standing(m.state, m.at, t);
BEGIN
  IF m.number IS NULL THEN RETURN 0; END IF;
  IF standing > 2 THEN RETURN standing; END IF;
  UPDATE tenure.message o SET state = 0, at = t + p_delay, cause = CASE WHEN m.state = 1 THEN 4 ELSE m.cause END
    WHERE o.number = m.number;
  PERFORM tenure.queue_free(m.queue, m.key);
  PERFORM tenure.queue_tell(m.queue);
  RETURN standing;
END $$;

-- 0 it is not parked, 1 it is due, 2 the queue is paused.
CREATE FUNCTION tenure.queue_give_turn(
  p_queue bytea, p_number bigint, p_name bytea, p_lock bytea, p_token text, p_fence bigint
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE m tenure.message;
BEGIN
  IF (SELECT q.paused FROM tenure.queue q WHERE q.name = p_queue) THEN RETURN 2; END IF;
  m := tenure.queue_hold(p_queue, p_number, p_name);
  IF m.number IS NULL OR m.state <> 0 OR m.cause <> 3 THEN RETURN 0; END IF;
  -- Due since its push: its wait for the lock puts it behind no message that was pushed later.
  UPDATE tenure.message o SET at = m.pushed, turn_lock = p_lock, turn_token = p_token, turn_fence = p_fence
    WHERE o.number = m.number;
  PERFORM tenure.queue_free(m.queue, m.key);
  PERFORM tenure.queue_tell(m.queue);
  RETURN 1;
END $$;

-- Looks. All columns that a client may see of a message, as of now.
CREATE FUNCTION tenure.queue_get(p_queue bytea, p_number bigint, p_name bytea) RETURNS TABLE (
  r_number bigint, r_name bytea, r_payload bytea, r_attempt integer, r_attempts integer, r_standing integer, r_due_in bigint,
  r_age bigint, r_key bytea, r_lock bytea, r_reason bytea, r_recurrence bytea, r_expires_in bigint, r_at bigint
) LANGUAGE plpgsql AS $$
DECLARE t bigint := tenure.queue_now();
BEGIN
  RETURN QUERY SELECT m.number, m.name, m.payload, m.attempt, m.attempts, tenure.queue_standing(m.state, m.at, t),
      CASE WHEN m.state = 3 THEN 0 ELSE m.at - t END, t - m.pushed, m.key, m.lock, m.reason, m.recurrence, m.expires - t, m.at
    FROM tenure.message m
    WHERE m.queue = p_queue AND CASE WHEN p_name IS NULL THEN m.number = p_number AND m.name IS NULL ELSE m.name = p_name END
      AND (m.number = p_number OR m.name = p_name);
END $$;

-- Up to p_max messages behind a place, in the order of their times: those in flight, or those that wait.
CREATE FUNCTION tenure.queue_list(p_queue bytea, p_in_flight boolean, p_at bigint, p_after bigint, p_max integer) RETURNS TABLE (
  r_number bigint, r_name bytea, r_payload bytea, r_attempt integer, r_attempts integer, r_standing integer, r_due_in bigint,
  r_age bigint, r_key bytea, r_lock bytea, r_reason bytea, r_recurrence bytea, r_expires_in bigint, r_at bigint
) LANGUAGE plpgsql AS $$
DECLARE t bigint := tenure.queue_now();
BEGIN
  RETURN QUERY SELECT m.number, m.name, m.payload, m.attempt, m.attempts, tenure.queue_standing(m.state, m.at, t), m.at - t,
      t - m.pushed, m.key, m.lock, m.reason, m.recurrence, m.expires - t, m.at
    FROM (
      (SELECT * FROM tenure.message a WHERE a.queue = p_queue AND a.state <= 1 AND (a.state = 1 AND a.at > t) = p_in_flight
        AND (a.at, a.number) > (p_at, p_after) ORDER BY a.at, a.number LIMIT p_max)
      UNION ALL
      (SELECT * FROM tenure.message h WHERE h.queue = p_queue AND h.state = 2 AND NOT p_in_flight
        AND (h.at, h.number) > (p_at, p_after) ORDER BY h.at, h.number LIMIT p_max)
    ) m ORDER BY m.at, m.number LIMIT p_max;
END $$;

CREATE FUNCTION tenure.queue_limit(p_queue bytea, p_in_flight bigint, p_deliveries bigint, p_per bigint, p_every bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO tenure.queue AS q (name, in_flight, deliveries, per, every) VALUES (p_queue, p_in_flight, p_deliveries, p_per, p_every)
    ON CONFLICT (name) DO UPDATE SET in_flight = p_in_flight, deliveries = p_deliveries, per = p_per, every = p_every, full_at = 0;
  DELETE FROM tenure.queue q WHERE q.name = p_queue AND NOT q.paused AND q.in_flight = 0 AND q.deliveries = 0;
  PERFORM tenure.queue_tell(p_queue);
END $$;

CREATE FUNCTION tenure.queue_pause(p_queue bytea, p_paused boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO tenure.queue AS q (name, paused) VALUES (p_queue, p_paused) ON CONFLICT (name) DO UPDATE SET paused = p_paused;
  DELETE FROM tenure.queue q WHERE q.name = p_queue AND NOT q.paused AND q.in_flight = 0 AND q.deliveries = 0;
  PERFORM tenure.queue_tell(p_queue);
END $$;

CREATE FUNCTION tenure.queue_stats(p_queue bytea) RETURNS TABLE (
  r_scheduled bigint, r_ready bigint, r_in_flight bigint, r_dead bigint, r_lag bigint, r_next_due bigint, r_paused boolean,
  r_max_in_flight bigint, r_deliveries bigint, r_per bigint
) LANGUAGE plpgsql AS $$
DECLARE q tenure.queue; t bigint := tenure.queue_now();
BEGIN
  SELECT * INTO q FROM tenure.queue o WHERE o.name = p_queue;
  RETURN QUERY SELECT count(*) FILTER (WHERE m.standing = 1), count(*) FILTER (WHERE m.standing = 2),
      count(*) FILTER (WHERE m.standing = 3), count(*) FILTER (WHERE m.standing = 4),
      coalesce(t - min(m.at) FILTER (WHERE m.standing = 2), 0), min(m.at) FILTER (WHERE m.standing = 1) - t,
      coalesce(q.paused, false), coalesce(q.in_flight, 0), coalesce(q.deliveries, 0), coalesce(q.per, 0)
    FROM (SELECT o.at, tenure.queue_standing(o.state, o.at, t) AS standing FROM (
        SELECT a.at, a.state FROM tenure.message a WHERE a.queue = p_queue AND a.state <= 1
        UNION ALL SELECT h.at, h.state FROM tenure.message h WHERE h.queue = p_queue AND h.state = 2
        UNION ALL SELECT d.at, d.state FROM tenure.message d WHERE d.queue = p_queue AND d.state = 3) o) m;
END $$;

-- Removes up to p_max messages that wait, none with a number above p_newest (0: all numbers so far). Returns how many it checked
-- at, how many went, and which number was the newest.
CREATE FUNCTION tenure.queue_purge(p_queue bytea, p_max integer, p_newest bigint, OUT r_found integer, OUT r_removed integer,
  OUT r_newest bigint) LANGUAGE plpgsql AS $$
DECLARE
  t bigint := tenure.queue_now();
  numbers bigint[]; keys bytea[]; k bytea;
BEGIN
  r_newest := CASE WHEN p_newest > 0 THEN p_newest ELSE (SELECT s.last_value FROM tenure.message_number_seq s) END;
  SELECT array_agg(c.number), array_agg(DISTINCT c.key) INTO numbers, keys FROM (
    (SELECT m.number, m.key, m.at FROM tenure.message m WHERE m.queue = p_queue AND m.state <= 1 AND m.number <= r_newest
      AND NOT (m.state = 1 AND m.at > t) ORDER BY m.at, m.number LIMIT p_max)
    UNION ALL
    (SELECT m.number, m.key, m.at FROM tenure.message m WHERE m.queue = p_queue AND m.state = 2 AND m.number <= r_newest
      LIMIT p_max)
    ORDER BY at, number LIMIT p_max) c;
  r_found := coalesce(cardinality(numbers), 0);
  -- All keys before any row. The deletion skips rows that others keep, so that it waits for none while it has them.
  PERFORM tenure.queue_lock(1952804171, p_queue, keys);
  WITH gone AS (
    DELETE FROM tenure.message m USING (
      SELECT o.number FROM tenure.message o WHERE o.number = ANY (numbers) AND o.queue = p_queue AND tenure.queue_standing(o.state, o.at, t) <= 2
        FOR UPDATE SKIP LOCKED) o
      WHERE m.number = o.number RETURNING m.number)
  SELECT count(*) INTO r_removed FROM gone;
  FOREACH k IN ARRAY coalesce(keys, '{}') LOOP
    PERFORM tenure.queue_free(p_queue, k);
  END LOOP;
  IF EXISTS (SELECT FROM unnest(keys) u WHERE u IS NOT NULL) THEN PERFORM tenure.queue_tell(p_queue); END IF;
END $$;

-- Goes from name to name along the indexes, past all messages of each.
CREATE FUNCTION tenure.queue_names(p_after bytea, p_max integer) RETURNS SETOF bytea LANGUAGE plpgsql STABLE AS $$
DECLARE n bytea := p_after;
BEGIN
  FOR i IN 1 .. p_max LOOP
    SELECT c.name INTO n FROM (
      (SELECT m.queue AS name FROM tenure.message m WHERE m.queue > n AND m.state <= 1 ORDER BY m.queue, m.at, m.number LIMIT 1)
      UNION ALL (SELECT m.queue FROM tenure.message m WHERE m.queue > n AND m.state = 2 ORDER BY m.queue, m.key, m.at, m.number LIMIT 1)
      UNION ALL (SELECT m.queue FROM tenure.message m WHERE m.queue > n AND m.state = 3 ORDER BY m.queue, m.at, m.number LIMIT 1)
      UNION ALL (SELECT q.name FROM tenure.queue q WHERE q.name > n ORDER BY q.name LIMIT 1)) c ORDER BY c.name LIMIT 1;
    EXIT WHEN n IS NULL;
    RETURN NEXT n;
  END LOOP;
END $$;

CREATE FUNCTION tenure.queue_dead(p_queue bytea, p_at bigint, p_after bigint, p_max integer) RETURNS TABLE (
  r_number bigint, r_name bytea, r_payload bytea, r_attempt integer, r_doom smallint, r_reason bytea, r_at bigint, r_died bigint
) LANGUAGE plpgsql AS $$
DECLARE t bigint := tenure.queue_now();
BEGIN
  RETURN QUERY SELECT m.number, m.name, m.payload, m.attempt, m.doom, m.reason, m.at, t - m.at FROM tenure.message m
    WHERE m.queue = p_queue AND m.state = 3 AND (m.at, m.number) > (p_at, p_after) ORDER BY m.at, m.number LIMIT p_max;
END $$;

-- Numbers of dead letters: those with these numbers or names, or else the oldest.
CREATE FUNCTION tenure.queue_dead_chosen(p_queue bytea, p_numbers bigint[], p_names bytea[], p_oldest integer)
RETURNS bigint[] LANGUAGE sql VOLATILE AS $$
  SELECT array_agg(c.number) FROM (
    SELECT m.number FROM tenure.message m WHERE m.queue = p_queue AND m.state = 3
      AND (p_oldest IS NOT NULL OR m.number = ANY (p_numbers) AND m.name IS NULL OR m.name = ANY (p_names))
      ORDER BY m.at, m.number LIMIT p_oldest FOR UPDATE SKIP LOCKED) c
$$;

-- Makes dead letters due, or removes them (a delay of null). Returns how many; one more than asked for means that there are more.
CREATE FUNCTION tenure.queue_dead_move(p_queue bytea, p_numbers bigint[], p_names bytea[], p_oldest integer, p_delay bigint,
  OUT r_moved bigint, OUT r_rest boolean) LANGUAGE plpgsql AS $$
DECLARE
  t bigint := tenure.queue_now(); numbers bigint[];
BEGIN
  numbers := coalesce(tenure.queue_dead_chosen(p_queue, p_numbers, p_names, p_oldest), '{}');
  IF p_delay IS NULL THEN
    DELETE FROM tenure.message m WHERE m.number = ANY (numbers);
  ELSE
    UPDATE tenure.message m SET state = 0, at = t + p_delay, attempt = 0, doom = NULL, cause = 5, expires = NULL
      WHERE m.number = ANY (numbers);
    IF cardinality(numbers) > 0 THEN PERFORM tenure.queue_tell(p_queue); END IF;
  END IF;
  r_moved := cardinality(numbers);
  r_rest := p_oldest IS NOT NULL AND EXISTS (SELECT FROM tenure.message m WHERE m.queue = p_queue AND m.state = 3);
END $$;
