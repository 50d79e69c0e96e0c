-- Delay queues. One timeline for due times and ends of leases, one row a message; any receive does all the work.
--
-- Times and spans are microseconds. All that decides about messages of a queue first locks the row of the queue, so that no two requests
-- wait for each other, and fences grow in the order of the takings. With that lock no request waits for a row of a message: it
-- skips rows that another transaction keeps, or fails at once. A plain push, and one in a user's transaction, does not lock
-- the queue: it writes rows of its own, and waits for none.
--
-- {now} is the server's clock, see the locks. The queues' clock is what it shows, but never goes back: see tenure_queue_clock.

-- The row of a queue is made by the first receive, or whatever else decides about its messages.
CREATE TABLE IF NOT EXISTS tenure_queue (
  name       VARBINARY(256) NOT NULL PRIMARY KEY,
  fence      BIGINT         NOT NULL DEFAULT 0, -- of the latest delivery
  paused     TINYINT        NOT NULL DEFAULT 0,
  in_flight  BIGINT         NOT NULL DEFAULT 0, -- how many at once; 0: no limit
  deliveries BIGINT         NOT NULL DEFAULT 0, -- how many in a span; 0: no limit
  span       BIGINT         NOT NULL DEFAULT 0, -- that span
  step       BIGINT         NOT NULL DEFAULT 0, -- from one delivery to the next
  full_at    BIGINT         NOT NULL DEFAULT 0, -- when the bucket of the rate is full again
  dead       BIGINT         NOT NULL DEFAULT 0  -- how many dead letters; counted again when they seem full
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
//
-- The index of names is not unique: to find that a name is there already, an insert would wait for open transactions, and would
-- lock what others delete. See tenure_queue_single.
CREATE TABLE IF NOT EXISTS tenure_message (
  number     BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
  queue      VARBINARY(256) NOT NULL,
  line       TINYINT        NOT NULL DEFAULT 0, -- 0 the timeline, 1 held by its key, 2 dead
  leased     TINYINT        NOT NULL DEFAULT 0, -- on the timeline: delivered, and not settled
  due        BIGINT         NOT NULL,           -- when it is due, its lease ends, or it died
  pushed     BIGINT         NOT NULL,
  delivery   BIGINT         NOT NULL DEFAULT 0, -- the fence of the latest delivery; with the number its receipt
  late       BIGINT         NOT NULL DEFAULT 0, -- how late that was
  attempt    INT            NOT NULL DEFAULT 0,
  attempts   INT            NOT NULL,
  cause      TINYINT        NOT NULL DEFAULT 0, -- first, retried, returned, parked, expired, redriven
  reported   TINYINT        NOT NULL DEFAULT 0, -- the cause of the latest delivery
  doom       TINYINT        NULL,               -- exhausted, rejected, expired, damaged
  expires    BIGINT         NULL,               -- until when it may be delivered
  known_for  BIGINT         NOT NULL DEFAULT 0, -- for how long its name stays known after it was acknowledged
  name       VARBINARY(128) NULL,
  ckey       VARBINARY(128) NULL,
  lck        VARBINARY(512) NULL,
  reason     VARBINARY(256) NULL,
  recurrence VARBINARY(256) NULL,
  payload    MEDIUMBLOB     NOT NULL,
  KEY turn (queue, line, due),
  KEY by_key (queue, ckey, line, leased, due),
  KEY by_name (queue, name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
//
-- Names of acknowledged messages that are still known.
CREATE TABLE IF NOT EXISTS tenure_settled (
  queue VARBINARY(256) NOT NULL, name VARBINARY(128) NOT NULL, until BIGINT NOT NULL, PRIMARY KEY (queue, name), KEY (until)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
//
-- What the queues' clock has to be ahead of the server's, since that was set back; and a time that it has reached. Receives that hand
-- something out write that down, ten times a second at most: so far a step back is seen, and time does not advance until then.
CREATE TABLE IF NOT EXISTS tenure_clock (one TINYINT NOT NULL PRIMARY KEY, shift BIGINT NOT NULL, reached BIGINT NOT NULL) ENGINE=InnoDB
//
INSERT INTO tenure_clock (one, shift, reached) VALUES (1, 0, 0) ON DUPLICATE KEY UPDATE one = 1
//
DROP PROCEDURE IF EXISTS tenure_queue_now
//
CREATE PROCEDURE tenure_queue_now(OUT p_now BIGINT)
BEGIN
  SELECT GREATEST({now} + shift, reached) INTO p_now FROM tenure_clock WHERE one = 1;
END
//
-- As tenure_queue_now, for those who hand something out. What another transaction is about to write, it writes.
DROP PROCEDURE IF EXISTS tenure_queue_clock
//
CREATE PROCEDURE tenure_queue_clock(OUT p_now BIGINT)
BEGIN
  DECLARE l_shift, l_reached BIGINT;
  SELECT shift, reached INTO l_shift, l_reached FROM tenure_clock WHERE one = 1;
  SET p_now = {now} + l_shift;
  IF p_now < l_reached OR p_now > l_reached + 100000 THEN
    SET l_shift = NULL;
    SELECT shift, reached INTO l_shift, l_reached FROM tenure_clock WHERE one = 1 FOR UPDATE SKIP LOCKED;
    IF l_shift IS NOT NULL THEN
      SET p_now = {now} + l_shift;
      UPDATE tenure_clock SET shift = l_shift + GREATEST(l_reached - p_now, 0), reached = GREATEST(p_now, l_reached) WHERE one = 1;
    END IF;
  END IF;
  SET p_now = GREATEST(p_now, l_reached);
END
//
-- Makes the row of a queue, if there is none.
DROP PROCEDURE IF EXISTS tenure_queue_make
//
CREATE PROCEDURE tenure_queue_make(p_queue VARBINARY(256))
BEGIN
  DECLARE l_there INT DEFAULT 0;
  SELECT COUNT(*) INTO l_there FROM tenure_queue WHERE name = p_queue;
  IF NOT l_there THEN INSERT IGNORE INTO tenure_queue (name) VALUES (p_queue); END IF;
END
//
-- Finds the message of a name, with its queue locked. Pushes of one name in several open transactions each store a message: of those,
-- the first that was delivered stays, or else the first.
DROP PROCEDURE IF EXISTS tenure_queue_single
//
CREATE PROCEDURE tenure_queue_single(p_queue VARBINARY(256), p_name VARBINARY(128), OUT p_number BIGINT)
BEGIN
  DECLARE l_other BIGINT DEFAULT NULL;
  SET p_number = NULL;
  SELECT number INTO p_number FROM tenure_message WHERE queue = p_queue AND name = p_name ORDER BY delivery = 0, number LIMIT 1;
  copies: LOOP
    SET l_other = NULL;
    SELECT number INTO l_other FROM tenure_message WHERE queue = p_queue AND name = p_name AND number <> p_number AND delivery = 0
      LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF l_other IS NULL THEN LEAVE copies; END IF;
    DELETE FROM tenure_message WHERE number = l_other;
  END LOOP;
END
//
-- Locks the row of a message, if it is there. SQLSTATE TN005: another transaction keeps it.
DROP PROCEDURE IF EXISTS tenure_queue_take
//
CREATE PROCEDURE tenure_queue_take(p_number BIGINT)
BEGIN
  DECLARE l_taken, l_there INT DEFAULT 0;
  SELECT COUNT(*) INTO l_taken FROM tenure_message WHERE number = p_number FOR UPDATE SKIP LOCKED;
  IF NOT l_taken THEN
    SELECT COUNT(*) INTO l_there FROM tenure_message WHERE number = p_number;
    IF l_there THEN SIGNAL SQLSTATE 'TN005' SET MESSAGE_TEXT = 'another transaction keeps the row of this message'; END IF;
  END IF;
END
//
-- Makes the first message that a key holds back available, if none of the key is in flight.
DROP PROCEDURE IF EXISTS tenure_queue_free
//
CREATE PROCEDURE tenure_queue_free(p_queue VARBINARY(256), p_key VARBINARY(128))
BEGIN
  DECLARE l_busy INT DEFAULT 0;
  DECLARE l_next BIGINT DEFAULT NULL;
  IF p_key IS NOT NULL THEN
    SELECT EXISTS (SELECT 1 FROM tenure_message FORCE INDEX (by_key)
      WHERE queue = p_queue AND ckey = p_key AND line = 0 AND leased = 1) INTO l_busy;
    IF NOT l_busy THEN
      SELECT number INTO l_next FROM tenure_message FORCE INDEX (by_key)
        WHERE queue = p_queue AND ckey = p_key AND line = 1 AND leased = 0 ORDER BY due, number LIMIT 1;
      IF l_next IS NOT NULL THEN
        CALL tenure_queue_take(l_next);
        UPDATE tenure_message SET line = 0 WHERE number = l_next;
      END IF;
    END IF;
  END IF;
END
//
-- Moves a message to the dead letters, or lets it wait a minute where they are full. 2 it is dead, 3 it waits.
DROP PROCEDURE IF EXISTS tenure_queue_bury
//
CREATE PROCEDURE tenure_queue_bury(p_queue VARBINARY(256), p_number BIGINT, p_key VARBINARY(128), p_doom INT, p_reason VARBINARY(256),
  p_most BIGINT, p_now BIGINT, OUT p_fate INT)
BEGIN
  DECLARE l_dead BIGINT DEFAULT 0;
  SELECT dead INTO l_dead FROM tenure_queue WHERE name = p_queue;
  SET p_fate = IF(l_dead >= p_most, 3, 2);
  UPDATE tenure_message SET doom = p_doom, reason = p_reason, leased = 0, line = IF(p_fate = 2, 2, 0),
    due = IF(p_fate = 2, p_now, p_now + 60000000) WHERE number = p_number;
  IF p_fate = 2 THEN UPDATE tenure_queue SET dead = dead + 1 WHERE name = p_queue; END IF;
  CALL tenure_queue_free(p_queue, p_key);
END
//
-- Stores messages, all or none. Rows are a JSON array of [place and length of its payload among the bytes, delay, attempts, 1 if
-- parked, name, known for, 1 to replace, key, lock, ttl, recurrence], texts in hexadecimal, what is left out null. One row, with a word
-- for each message, in order: the answer, a colon, its number. 0 stored, 1 stored in place of another, 11 to 15 not stored, since
-- its name is known: scheduled, ready, in flight, dead, settled.
DROP PROCEDURE IF EXISTS tenure_queue_push
//
CREATE PROCEDURE tenure_queue_push(p_queue VARBINARY(256), p_rows LONGTEXT CHARACTER SET utf8mb4, p_bytes LONGBLOB, p_named INT)
BEGIN
  DECLARE l_place, l_length, l_attempts, l_parked, l_replace, l_end, l_answer INT DEFAULT 0;
  DECLARE l_delay, l_known_for, l_ttl, l_number, l_until, t BIGINT;
  DECLARE l_name, l_key, l_its_key VARBINARY(128);
  DECLARE l_lock VARBINARY(512);
  DECLARE l_recurrence VARBINARY(256);
  DECLARE l_answers LONGTEXT CHARACTER SET utf8mb4 DEFAULT '';
  DECLARE c CURSOR FOR SELECT place, length, delay, attempts, parked, UNHEX(name), known_for, again, UNHEX(ckey), UNHEX(lck), ttl,
      UNHEX(recurrence)
    FROM JSON_TABLE(p_rows, '$[*]' COLUMNS (place INT PATH '$[0]', length INT PATH '$[1]', delay BIGINT PATH '$[2]',
      attempts INT PATH '$[3]', parked INT PATH '$[4]', name VARCHAR(256) PATH '$[5]', known_for BIGINT PATH '$[6]',
      again INT PATH '$[7]', ckey VARCHAR(256) PATH '$[8]', lck VARCHAR(1024) PATH '$[9]', ttl BIGINT PATH '$[10]',
      recurrence VARCHAR(512) PATH '$[11]')) j;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET l_end = 1;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  CALL tenure_writable();
  IF p_named THEN CALL tenure_queue_make(p_queue); END IF;
  OPEN c;
  START TRANSACTION;
  IF p_named THEN
    -- Of two pushes of one name at once, the second has to see the first. Pushes without names need no lock.
    SELECT dead INTO l_number FROM tenure_queue WHERE name = p_queue FOR UPDATE;
  END IF;
  -- Behind the wait for that row: delays count from here.
  CALL tenure_queue_now(t);
  messages: LOOP
    SET l_end = 0;
    FETCH c INTO l_place, l_length, l_delay, l_attempts, l_parked, l_name, l_known_for, l_replace, l_key, l_lock, l_ttl, l_recurrence;
    IF l_end THEN LEAVE messages; END IF;
    SET l_answer = 0, l_number = NULL;
    IF l_name IS NOT NULL THEN
      SELECT number, ckey, IF(line = 2, 14, IF(line = 1 OR due <= t, 12, IF(leased, 13, 11))) INTO l_number, l_its_key, l_answer
        FROM tenure_message WHERE queue = p_queue AND name = l_name ORDER BY delivery = 0, number LIMIT 1;
      IF l_number IS NOT NULL AND l_replace AND l_answer <= 12 THEN
        CALL tenure_queue_single(p_queue, l_name, l_number);
        CALL tenure_queue_take(l_number);
        DELETE FROM tenure_message WHERE number = l_number;
        CALL tenure_queue_free(p_queue, l_its_key);
        SET l_answer = 1;
      ELSEIF l_number IS NULL THEN
        SET l_until = 0;
        SELECT until INTO l_until FROM tenure_settled WHERE queue = p_queue AND name = l_name;
        IF l_until > t THEN SET l_answer = 15; END IF;
      END IF;
    END IF;
    IF l_answer < 10 THEN
      INSERT INTO tenure_message (queue, due, pushed, attempts, cause, name, known_for, ckey, lck, expires, recurrence, payload)
        VALUES (p_queue, t + l_delay, t, l_attempts, IF(l_parked, 3, 0), l_name, COALESCE(l_known_for, 0), l_key, l_lock,
          t + l_delay + l_ttl, l_recurrence, SUBSTRING(p_bytes, l_place + 1, l_length));
      SET l_number = LAST_INSERT_ID();
    END IF;
    SET l_answers = CONCAT(l_answers, l_answer, ':', COALESCE(l_number, 0), ',');
  END LOOP;
  CLOSE c;
  COMMIT;
  SELECT l_answers;
END
//
-- Stores a message, in the caller's own transaction: it is there if that is committed, and was never there if not. For a name
-- that is known already, as far as the transaction sees, nothing is stored. The answer is its number, or null. Spans are in seconds.
-- It reads without locks and writes a row of its own, so that it waits for nothing, and nothing waits for the transaction.
DROP PROCEDURE IF EXISTS tenure_push
//
CREATE PROCEDURE tenure_push(p_queue VARBINARY(256), p_payload MEDIUMBLOB, p_delay DECIMAL(20, 6), p_name VARBINARY(128),
  p_known_for DECIMAL(20, 6), p_key VARBINARY(128), p_attempts INT)
main: BEGIN
  DECLARE l_known INT DEFAULT 0;
  DECLARE t BIGINT DEFAULT 0;
  IF COALESCE(LENGTH(p_queue), 0) NOT BETWEEN 1 AND 256 OR LENGTH(p_name) = 0 OR LENGTH(p_key) = 0 OR LENGTH(p_payload) > 1048576
    OR p_payload IS NULL
    OR COALESCE(p_delay, 0) NOT BETWEEN 0 AND 315360000 OR COALESCE(p_known_for, 0) NOT BETWEEN 0 AND 315360000
    OR COALESCE(p_attempts, 10) NOT BETWEEN 1 AND 10000 THEN
    SIGNAL SQLSTATE 'TN004' SET MESSAGE_TEXT = 'a queue, name, key, span, number of attempts or payload that tenure does not take';
  END IF;
  CALL tenure_writable();
  CALL tenure_queue_now(t);
  IF p_name IS NOT NULL THEN
    SELECT EXISTS (SELECT 1 FROM tenure_message WHERE queue = p_queue AND name = p_name)
      OR EXISTS (SELECT 1 FROM tenure_settled WHERE queue = p_queue AND name = p_name AND until > t) INTO l_known;
    IF l_known THEN SELECT NULL AS number; LEAVE main; END IF;
  END IF;
  INSERT INTO tenure_message (queue, due, pushed, attempts, name, known_for, ckey, payload) VALUES (p_queue,
    t + COALESCE(p_delay, 0) * 1000000, t, COALESCE(p_attempts, 10), p_name, COALESCE(p_known_for, 0) * 1000000, p_key, p_payload);
  SELECT LAST_INSERT_ID() AS number;
END
//
-- Ends deliveries. Settlements are a JSON array of [number, delivery, how, delay, reason, recurrence], the texts in hexadecimal.
-- How: 0 done, 1 retry, 2 return, 3 park, 4 dead, 5 again on its schedule. A digit for each: 0 stale, 1 done, 2 dead, 3 it waits for a
-- place among the dead.
DROP PROCEDURE IF EXISTS tenure_queue_settle
//
CREATE PROCEDURE tenure_queue_settle(p_queue VARBINARY(256), p_settles LONGTEXT CHARACTER SET utf8mb4, p_dead BIGINT, OUT p_answers VARCHAR(1024))
BEGIN
  DECLARE l_how, l_attempt, l_attempts, l_end, l_found, l_answer, l_old INT DEFAULT 0;
  DECLARE l_number, l_delivery, l_delay, l_known_for, t BIGINT;
  DECLARE l_name, l_key VARBINARY(128);
  DECLARE l_reason, l_recurrence, l_its_reason VARBINARY(256);
  DECLARE c CURSOR FOR SELECT number, delivery, how, delay, UNHEX(reason), UNHEX(recurrence)
    FROM JSON_TABLE(p_settles, '$[*]' COLUMNS (number BIGINT PATH '$[0]', delivery BIGINT PATH '$[1]', how INT PATH '$[2]',
      delay BIGINT PATH '$[3]', reason VARCHAR(512) PATH '$[4]', recurrence VARCHAR(512) PATH '$[5]')) j;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET l_end = 1;
  SET p_answers = '';
  CALL tenure_queue_now(t);
  OPEN c;
  settles: LOOP
    SET l_end = 0;
    FETCH c INTO l_number, l_delivery, l_how, l_delay, l_reason, l_recurrence;
    IF l_end THEN LEAVE settles; END IF;
    SET l_found = 0, l_answer = 0;
    SELECT 1, attempt, attempts, name, known_for, ckey, reason
      INTO l_found, l_attempt, l_attempts, l_name, l_known_for, l_key, l_its_reason
      FROM tenure_message WHERE number = l_number AND queue = p_queue AND line = 0 AND leased = 1 AND delivery = l_delivery FOR UPDATE SKIP LOCKED;
    -- Not found is stale only if no other transaction keeps the row: otherwise the outcome is not known yet.
    IF NOT l_found THEN CALL tenure_queue_take(l_number); END IF;
    IF l_found THEN
      SET l_answer = 1;
      IF l_how = 0 THEN
        DELETE FROM tenure_message WHERE number = l_number;
        IF l_known_for > 0 AND l_name IS NOT NULL THEN
          INSERT INTO tenure_settled (queue, name, until) VALUES (p_queue, l_name, t + l_known_for)
            ON DUPLICATE KEY UPDATE until = t + l_known_for;
          DELETE FROM tenure_settled WHERE queue = p_queue AND until < t ORDER BY until LIMIT 8;
        END IF;
      ELSEIF l_how = 4 OR l_how = 1 AND l_attempt >= l_attempts THEN
        CALL tenure_queue_bury(p_queue, l_number, l_key, IF(l_how = 4, 1, 0), l_reason, p_dead, t, l_answer);
      ELSE
        UPDATE tenure_message SET leased = 0, due = t + l_delay, cause = ELT(l_how, 1, 2, 3, 0, 0),
          attempt = CASE l_how WHEN 1 THEN attempt WHEN 5 THEN 0 ELSE GREATEST(attempt - 1, 0) END,
          reason = IF(l_how IN (1, 5), l_reason, reason), expires = IF(l_how = 5, NULL, expires),
          recurrence = IF(l_how = 5, l_recurrence, recurrence) WHERE number = l_number;
      END IF;
      CALL tenure_queue_free(p_queue, l_key);
    END IF;
    SET p_answers = CONCAT(p_answers, l_answer);
  END LOOP;
  CLOSE c;
END
//
-- How many deliveries the limits of a queue allow, and when they allow one.
DROP PROCEDURE IF EXISTS tenure_queue_room
//
CREATE PROCEDURE tenure_queue_room(p_queue VARBINARY(256), p_now BIGINT, OUT p_room BIGINT, OUT p_room_at BIGINT)
BEGIN
  DECLARE l_in_flight, l_deliveries, l_step, l_full_at, l_busy, l_tokens, l_over, l_ends BIGINT DEFAULT 0;
  SET p_room = 1000000, p_room_at = 0;
  SELECT in_flight, deliveries, step, full_at INTO l_in_flight, l_deliveries, l_step, l_full_at FROM tenure_queue WHERE name = p_queue;
  IF l_deliveries > 0 THEN
    SET l_tokens = GREATEST(l_deliveries - (GREATEST(l_full_at - p_now, 0) + l_step - 1) DIV l_step, 0), p_room = l_tokens;
    IF l_tokens = 0 THEN SET p_room_at = l_full_at - l_step * (l_deliveries - 1); END IF;
  END IF;
  IF l_in_flight > 0 THEN
    SELECT COUNT(*) INTO l_busy FROM tenure_message WHERE queue = p_queue AND line = 0 AND due > p_now AND leased = 1;
    SET p_room = LEAST(p_room, GREATEST(l_in_flight - l_busy, 0)), l_over = l_busy - l_in_flight;
    IF l_over >= 0 THEN
      SELECT due INTO l_ends FROM tenure_message WHERE queue = p_queue AND line = 0 AND due > p_now AND leased = 1
        ORDER BY due LIMIT l_over, 1;
      SET p_room_at = GREATEST(p_room_at, l_ends);
    END IF;
  END IF;
END
//
-- Settles, then hands out what is due. One row with the answers to the settlements, when to ask again (in so many us; 0 at once,
-- -1 when something changes, -2 the same, since the queue is paused) and what was repaired; and a row for each delivery, the soonest
-- first. p_max 0 settles only.
DROP PROCEDURE IF EXISTS tenure_queue_turn
//
CREATE PROCEDURE tenure_queue_turn(p_queue VARBINARY(256), p_settles LONGTEXT CHARACTER SET utf8mb4, p_max INT, p_lease BIGINT,
  p_dead BIGINT, p_floor BIGINT)
main: BEGIN
  DECLARE l_there, l_paused, l_asked, l_seen, l_fate, l_expired, l_buried, l_postponed, l_given, l_end, l_busy, l_again INT DEFAULT 0;
  DECLARE l_looks INT DEFAULT 500;
  DECLARE l_in_flight, l_deliveries, l_step, l_full_at, l_room, l_room_at, l_soonest, l_first, l_fence, l_next, l_reached, t BIGINT DEFAULT 0;
  DECLARE l_answers VARCHAR(1024) DEFAULT '';
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET l_end = 1;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  SELECT 1, paused INTO l_there, l_paused FROM tenure_queue WHERE name = p_queue;
  IF p_settles IS NULL AND l_paused OR p_settles IS NOT NULL AND NOT l_there THEN
    SELECT l_answers, IF(l_paused, -2, -1), 0, 0, 0; LEAVE main;
  END IF;
  IF p_settles IS NULL THEN
    -- A look that finds nothing writes nothing, unless the clock was set back.
    SELECT {now} + shift, reached INTO t, l_reached FROM tenure_clock WHERE one = 1;
    SET l_soonest = NULL;
    SELECT due INTO l_soonest FROM tenure_message WHERE queue = p_queue AND line = 0 ORDER BY due LIMIT 1;
    IF t >= l_reached AND (l_soonest IS NULL OR l_soonest > t) THEN
      SELECT l_answers, COALESCE(l_soonest - t, -1), 0, 0, 0; LEAVE main;
    END IF;
  END IF;
  CALL tenure_writable();
  IF NOT l_there THEN CALL tenure_queue_make(p_queue); END IF;
  START TRANSACTION;
  -- Read again under the lock of the row, which puts receives in an order: fences grow in it, and room is used once.
  SELECT paused, in_flight, deliveries, step, full_at, fence INTO l_paused, l_in_flight, l_deliveries, l_step, l_full_at, l_fence
    FROM tenure_queue WHERE name = p_queue FOR UPDATE;
  -- In this order: the same call hands out what a settlement made due, or made room for.
  IF p_settles IS NOT NULL THEN CALL tenure_queue_settle(p_queue, p_settles, p_dead, l_answers); END IF;
  IF p_max = 0 OR l_paused THEN
    COMMIT;
    SELECT l_answers, IF(l_paused, -2, -1), 0, 0, 0; LEAVE main;
  END IF;
  CALL tenure_queue_clock(t);
  SET l_room = p_max, l_fence = GREATEST(l_fence, t, p_floor), l_first = l_fence + 1;
  IF l_in_flight > 0 OR l_deliveries > 0 THEN
    CALL tenure_queue_room(p_queue, t, l_room, l_room_at);
    SET l_room = LEAST(l_room, p_max);
  END IF;
  rounds: WHILE l_room > 0 AND l_looks > 0 DO
    SET l_asked = LEAST(l_room, l_looks), l_seen = 0;
    BEGIN
      DECLARE l_number, l_due, l_expires, l_delivery, l_single BIGINT;
      DECLARE l_leased, l_attempt, l_attempts, l_doom INT;
      DECLARE l_key, l_name VARBINARY(128);
      DECLARE l_reason VARBINARY(256);
      DECLARE c CURSOR FOR SELECT number, due, leased, attempt, attempts, doom, expires, ckey, reason, delivery, name
        FROM tenure_message WHERE queue = p_queue AND line = 0 AND due <= t ORDER BY due, number LIMIT l_asked FOR UPDATE SKIP LOCKED;
      OPEN c;
      messages: LOOP
        SET l_end = 0;
        FETCH c INTO l_number, l_due, l_leased, l_attempt, l_attempts, l_doom, l_expires, l_key, l_reason, l_delivery, l_name;
        IF l_end THEN LEAVE messages; END IF;
        SET l_seen = l_seen + 1, l_expired = l_expired + l_leased, l_busy = 0;
        -- Pushes in open transactions do not see each other, so a name may have copies, or be settled by now.
        IF l_name IS NOT NULL AND l_delivery = 0 THEN
          CALL tenure_queue_single(p_queue, l_name, l_single);
          SELECT EXISTS (SELECT 1 FROM tenure_settled WHERE queue = p_queue AND name = l_name AND until > t) INTO l_busy;
          IF l_busy OR l_single <> l_number THEN
            SET l_looks = l_looks - 1;
            DELETE FROM tenure_message WHERE number = l_number;
            ITERATE messages;
          END IF;
        END IF;
        IF l_key IS NOT NULL THEN
          SELECT EXISTS (SELECT 1 FROM tenure_message FORCE INDEX (by_key)
            WHERE queue = p_queue AND ckey = l_key AND line = 0 AND leased = 1 AND number <> l_number) INTO l_busy;
        END IF;
        IF l_doom IS NOT NULL OR l_attempt >= l_attempts OR COALESCE(l_expires < t, 0) THEN
          SET l_looks = l_looks - 1;
          CALL tenure_queue_bury(p_queue, l_number, l_key, COALESCE(l_doom, IF(l_attempt >= l_attempts, 0, 2)),
            IF(l_leased, 'the lease of its last delivery ended', l_reason), p_dead, t, l_fate);
          SET l_buried = l_buried + (l_fate = 2), l_postponed = l_postponed + (l_fate = 3);
        ELSEIF l_busy > 0 THEN
          SET l_looks = l_looks - 1;
          UPDATE tenure_message SET line = 1, cause = IF(leased, 4, cause), leased = 0 WHERE number = l_number;
        ELSE
          SET l_fence = l_fence + 1, l_given = l_given + 1, l_room = l_room - 1;
          UPDATE tenure_message SET reported = IF(leased, 4, cause), leased = 1, late = t - due, due = t + p_lease, delivery = l_fence,
            attempt = attempt + 1 WHERE number = l_number;
        END IF;
      END LOOP;
      CLOSE c;
    END;
    IF l_seen < l_asked THEN
      -- The scan of another queue locks its neighbours' rows for a moment: what is due and was not seen is looked for again.
      SET l_again = l_again + 1, l_busy = 0;
      IF l_seen = 0 AND l_given = 0 AND l_again <= 3 THEN
        SELECT EXISTS (SELECT 1 FROM tenure_message WHERE queue = p_queue AND line = 0 AND due <= t) INTO l_busy;
      END IF;
      IF NOT l_busy THEN LEAVE rounds; END IF;
    END IF;
  END WHILE;
  IF l_given > 0 THEN
    UPDATE tenure_queue SET fence = l_fence, full_at = IF(l_deliveries > 0, GREATEST(l_full_at, t) + l_step * l_given, full_at)
      WHERE name = p_queue;
  END IF;
  IF l_postponed > 0 THEN
    UPDATE tenure_queue SET dead = (SELECT COUNT(*) FROM tenure_message WHERE queue = p_queue AND line = 2) WHERE name = p_queue;
  END IF;
  SET l_soonest = NULL;
  SELECT due INTO l_soonest FROM tenure_message WHERE queue = p_queue AND line = 0 ORDER BY due LIMIT 1;
  IF l_soonest IS NOT NULL AND (l_in_flight > 0 OR l_deliveries > 0) THEN
    CALL tenure_queue_room(p_queue, t, l_room, l_room_at);
    SET l_soonest = GREATEST(l_soonest, l_room_at);
  END IF;
  COMMIT;
  SET l_next = CASE
    WHEN l_soonest IS NULL THEN -1
    WHEN l_soonest > t THEN l_soonest - t
    WHEN l_given = 0 AND l_buried = 0 AND l_postponed = 0 AND l_looks > 0 THEN 10000 -- another transaction has them
    ELSE 0 END;
  SELECT l_answers, l_next, l_expired, l_buried, l_postponed;
  IF l_given > 0 THEN
    -- By the fences that only this call gave: a message that went to another receive meanwhile is not among them.
    SELECT number, name, payload, attempt, attempts, reported, delivery, late, t - pushed, ckey, lck, reason, recurrence
      FROM tenure_message WHERE queue = p_queue AND line = 0 AND due = t + p_lease AND delivery BETWEEN l_first AND l_fence ORDER BY delivery;
  END IF;
END
//
-- Makes leases last. Extensions are a JSON array of [number, delivery, lease]. A digit for each: 1 done, 0 stale.
DROP PROCEDURE IF EXISTS tenure_queue_extend
//
CREATE PROCEDURE tenure_queue_extend(p_queue VARBINARY(256), p_extensions LONGTEXT CHARACTER SET utf8mb4)
BEGIN
  DECLARE l_end, l_found INT DEFAULT 0;
  DECLARE l_number, l_delivery, l_lease, t BIGINT;
  DECLARE l_answers VARCHAR(1024) DEFAULT '';
  DECLARE c CURSOR FOR SELECT number, delivery, lease FROM JSON_TABLE(p_extensions, '$[*]' COLUMNS (
    number BIGINT PATH '$[0]', delivery BIGINT PATH '$[1]', lease BIGINT PATH '$[2]')) j;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET l_end = 1;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  CALL tenure_writable();
  OPEN c;
  START TRANSACTION;
  SELECT dead INTO l_number FROM tenure_queue WHERE name = p_queue FOR UPDATE;
  CALL tenure_queue_now(t);
  extensions: LOOP
    SET l_end = 0;
    FETCH c INTO l_number, l_delivery, l_lease;
    IF l_end THEN LEAVE extensions; END IF;
    SET l_found = 0;
    SELECT 1 INTO l_found FROM tenure_message
      WHERE number = l_number AND queue = p_queue AND line = 0 AND leased = 1 AND delivery = l_delivery AND due > t FOR UPDATE SKIP LOCKED;
    -- As in a settlement: a row that another transaction keeps is not proved stale.
    IF NOT l_found THEN CALL tenure_queue_take(l_number); END IF;
    IF l_found THEN UPDATE tenure_message SET due = GREATEST(due, t + l_lease) WHERE number = l_number; END IF;
    SET l_answers = CONCAT(l_answers, l_found);
  END LOOP;
  CLOSE c;
  COMMIT;
  SELECT l_answers;
END
//
-- A message by its name or else its number, with its queue and itself locked; a number of null if it is not there. Standing: 0 not
-- there, 1 scheduled, 2 ready, 3 in flight, 4 dead.
DROP PROCEDURE IF EXISTS tenure_queue_hold
//
CREATE PROCEDURE tenure_queue_hold(p_queue VARBINARY(256), p_number BIGINT, p_name VARBINARY(128), OUT p_found BIGINT,
  OUT p_key VARBINARY(128), OUT p_standing INT, OUT p_now BIGINT)
BEGIN
  DECLARE l_number BIGINT DEFAULT p_number;
  CALL tenure_writable();
  -- Before the transaction: the row has to be there to be locked.
  CALL tenure_queue_make(p_queue);
  START TRANSACTION;
  SET p_found = NULL, p_standing = 0;
  SELECT dead INTO p_now FROM tenure_queue WHERE name = p_queue FOR UPDATE;
  CALL tenure_queue_now(p_now);
  IF p_name IS NOT NULL THEN CALL tenure_queue_single(p_queue, p_name, l_number); END IF;
  CALL tenure_queue_take(l_number);
  SELECT number, ckey, IF(line = 2, 4, IF(line = 1 OR due <= p_now, 2, IF(leased, 3, 1))) INTO p_found, p_key, p_standing
    FROM tenure_message WHERE number = l_number AND queue = p_queue AND name <=> p_name;
END
//
-- These answer with the standing: 1 and 2 it was waiting, and it is done.
DROP PROCEDURE IF EXISTS tenure_queue_cancel
//
CREATE PROCEDURE tenure_queue_cancel(p_queue VARBINARY(256), p_number BIGINT, p_name VARBINARY(128))
BEGIN
  DECLARE l_standing INT;
  DECLARE l_number, t BIGINT;
  DECLARE l_key VARBINARY(128);
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  CALL tenure_queue_hold(p_queue, p_number, p_name, l_number, l_key, l_standing, t);
  IF l_standing IN (1, 2) THEN
    DELETE FROM tenure_message WHERE number = l_number;
    CALL tenure_queue_free(p_queue, l_key);
  END IF;
  COMMIT;
  SELECT l_standing;
END
//
DROP PROCEDURE IF EXISTS tenure_queue_reschedule
//
CREATE PROCEDURE tenure_queue_reschedule(p_queue VARBINARY(256), p_number BIGINT, p_name VARBINARY(128), p_delay BIGINT)
BEGIN
  DECLARE l_standing INT;
  DECLARE l_number, t BIGINT;
  DECLARE l_key VARBINARY(128);
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  CALL tenure_queue_hold(p_queue, p_number, p_name, l_number, l_key, l_standing, t);
  IF l_standing IN (1, 2) THEN
    UPDATE tenure_message SET cause = IF(leased, 4, cause), leased = 0, line = 0, due = t + p_delay WHERE number = l_number;
    CALL tenure_queue_free(p_queue, l_key);
  END IF;
  COMMIT;
  SELECT l_standing;
END
//
-- Looks. All columns that a client may see of a message, as of now.
DROP PROCEDURE IF EXISTS tenure_queue_get
//
CREATE PROCEDURE tenure_queue_get(p_queue VARBINARY(256), p_number BIGINT, p_name VARBINARY(128))
BEGIN
  DECLARE t, l_number BIGINT DEFAULT NULL;
  IF p_name IS NULL THEN
    SELECT number INTO l_number FROM tenure_message WHERE number = p_number AND queue = p_queue AND name IS NULL;
  ELSE
    SELECT number INTO l_number FROM tenure_message WHERE queue = p_queue AND name = p_name ORDER BY delivery = 0, number LIMIT 1;
  END IF;
  CALL tenure_queue_now(t);
  SELECT number, name, payload, attempt, attempts, IF(line = 2, 4, IF(line = 1 OR due <= t, 2, IF(leased, 3, 1))),
      IF(line = 2, 0, due - t), t - pushed, ckey, lck, reason, recurrence, expires - t, due
    FROM tenure_message WHERE number = l_number;
END
//
-- Up to p_max messages behind a place, in the order of their times: those in flight, or those that wait.
DROP PROCEDURE IF EXISTS tenure_queue_list
//
CREATE PROCEDURE tenure_queue_list(p_queue VARBINARY(256), p_in_flight INT, p_due BIGINT, p_after BIGINT, p_max INT)
BEGIN
  DECLARE t BIGINT;
  CALL tenure_queue_now(t);
  SELECT number, name, payload, attempt, attempts, IF(line = 1 OR due <= t, 2, IF(leased, 3, 1)), due - t, t - pushed, ckey, lck, reason,
      recurrence, expires - t, due
    FROM (
      (SELECT * FROM tenure_message WHERE queue = p_queue AND line = 0 AND (leased = 1 AND due > t) = p_in_flight AND due >= p_due
        AND (due > p_due OR number > p_after) ORDER BY due, number LIMIT p_max)
      UNION ALL
      (SELECT * FROM tenure_message WHERE queue = p_queue AND line = 1 AND NOT p_in_flight AND due >= p_due
        AND (due > p_due OR number > p_after) ORDER BY due, number LIMIT p_max)
    ) m ORDER BY due, number LIMIT p_max;
END
//
DROP PROCEDURE IF EXISTS tenure_queue_limit
//
CREATE PROCEDURE tenure_queue_limit(p_queue VARBINARY(256), p_in_flight BIGINT, p_deliveries BIGINT, p_span BIGINT, p_step BIGINT)
BEGIN
  CALL tenure_writable();
  CALL tenure_queue_make(p_queue);
  UPDATE tenure_queue SET in_flight = p_in_flight, deliveries = p_deliveries, span = p_span, step = p_step, full_at = 0 WHERE name = p_queue;
  SELECT 0;
END
//
DROP PROCEDURE IF EXISTS tenure_queue_pause
//
CREATE PROCEDURE tenure_queue_pause(p_queue VARBINARY(256), p_paused INT)
BEGIN
  CALL tenure_writable();
  CALL tenure_queue_make(p_queue);
  UPDATE tenure_queue SET paused = p_paused WHERE name = p_queue;
  SELECT 0;
END
//
DROP PROCEDURE IF EXISTS tenure_queue_stats
//
CREATE PROCEDURE tenure_queue_stats(p_queue VARBINARY(256))
BEGIN
  DECLARE l_paused INT DEFAULT NULL;
  DECLARE l_in_flight, l_deliveries, l_span, t BIGINT DEFAULT 0;
  SELECT paused, in_flight, deliveries, span INTO l_paused, l_in_flight, l_deliveries, l_span FROM tenure_queue
    WHERE name = p_queue;
  CALL tenure_queue_now(t);
  SELECT COUNT(IF(standing = 1, 1, NULL)), COUNT(IF(standing = 2, 1, NULL)), COUNT(IF(standing = 3, 1, NULL)),
      COUNT(IF(standing = 4, 1, NULL)), COALESCE(t - MIN(IF(standing = 2, due, NULL)), 0), MIN(IF(standing = 1, due, NULL)) - t,
      COALESCE(l_paused, 0), l_in_flight, l_deliveries, l_span
    FROM (SELECT due, IF(line = 2, 4, IF(line = 1 OR due <= t, 2, IF(leased, 3, 1))) AS standing FROM tenure_message
      WHERE queue = p_queue) m;
END
//
-- Removes up to p_max messages that wait, none with a number above p_newest (0: all numbers so far). Returns how many it checked at, how
-- many went, and which number was the newest.
DROP PROCEDURE IF EXISTS tenure_queue_purge
//
CREATE PROCEDURE tenure_queue_purge(p_queue VARBINARY(256), p_max INT, p_newest BIGINT)
BEGIN
  DECLARE l_found, l_end, l_again, l_asked, l_left INT DEFAULT 0;
  DECLARE t, l_newest BIGINT DEFAULT p_newest;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  CALL tenure_writable();
  CALL tenure_queue_make(p_queue);
  START TRANSACTION;
  SELECT dead INTO t FROM tenure_queue WHERE name = p_queue FOR UPDATE;
  CALL tenure_queue_now(t);
  IF p_newest = 0 THEN SELECT COALESCE(MAX(number), 0) INTO l_newest FROM tenure_message; END IF;
  -- The scan of another queue locks its neighbours' rows for a moment: what is there and was not seen is looked for again.
  rounds: WHILE l_found < p_max AND l_again < 3 DO
    SET l_again = l_again + 1, l_asked = p_max - l_found, l_left = 0;
    BEGIN
      DECLARE l_number BIGINT;
      DECLARE l_key VARBINARY(128);
      DECLARE c CURSOR FOR SELECT number, ckey FROM tenure_message WHERE queue = p_queue AND line <= 1 AND number <= l_newest
        AND (line = 1 OR leased = 0 OR due <= t) ORDER BY line, due, number LIMIT l_asked FOR UPDATE SKIP LOCKED;
      DECLARE CONTINUE HANDLER FOR NOT FOUND SET l_end = 1;
      OPEN c;
      messages: LOOP
        SET l_end = 0;
        FETCH c INTO l_number, l_key;
        IF l_end THEN LEAVE messages; END IF;
        SET l_found = l_found + 1;
        DELETE FROM tenure_message WHERE number = l_number;
        CALL tenure_queue_free(p_queue, l_key);
      END LOOP;
      CLOSE c;
    END;
    IF l_found < p_max THEN
      SELECT EXISTS (SELECT 1 FROM tenure_message WHERE queue = p_queue AND line <= 1 AND number <= l_newest
        AND (line = 1 OR leased = 0 OR due <= t)) INTO l_left;
    END IF;
    IF NOT l_left THEN LEAVE rounds; END IF;
  END WHILE;
  COMMIT;
  SELECT l_found, l_newest;
END
//
DROP PROCEDURE IF EXISTS tenure_queue_names
//
CREATE PROCEDURE tenure_queue_names(p_after VARBINARY(256), p_max INT)
BEGIN
  (SELECT name FROM tenure_queue WHERE name > p_after AND (paused OR in_flight > 0 OR deliveries > 0) ORDER BY name LIMIT p_max)
  UNION
  (SELECT DISTINCT queue FROM tenure_message WHERE queue > p_after ORDER BY queue LIMIT p_max)
  ORDER BY name LIMIT p_max;
END
//
DROP PROCEDURE IF EXISTS tenure_queue_dead
//
CREATE PROCEDURE tenure_queue_dead(p_queue VARBINARY(256), p_due BIGINT, p_after BIGINT, p_max INT)
BEGIN
  DECLARE t BIGINT;
  CALL tenure_queue_now(t);
  SELECT number, name, payload, attempt, doom, reason, due, t - due FROM tenure_message
    WHERE queue = p_queue AND line = 2 AND due >= p_due AND (due > p_due OR number > p_after) ORDER BY due, number LIMIT p_max;
END
//
-- Makes dead letters due, or removes them (a delay of null): those of a JSON array of [number, name], the name in hexadecimal, or else
-- the oldest. Returns how many, and whether there are more.
DROP PROCEDURE IF EXISTS tenure_queue_dead_move
//
CREATE PROCEDURE tenure_queue_dead_move(p_queue VARBINARY(256), p_ids LONGTEXT CHARACTER SET utf8mb4, p_oldest INT, p_delay BIGINT)
BEGIN
  DECLARE l_moved, l_end, l_more INT DEFAULT 0;
  DECLARE l_number, t BIGINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  CALL tenure_writable();
  START TRANSACTION;
  SELECT dead INTO t FROM tenure_queue WHERE name = p_queue FOR UPDATE;
  CALL tenure_queue_now(t);
  BEGIN
    DECLARE oldest CURSOR FOR SELECT number FROM tenure_message WHERE queue = p_queue AND line = 2 ORDER BY due, number LIMIT p_oldest
      FOR UPDATE SKIP LOCKED;
    DECLARE named CURSOR FOR SELECT m.number FROM JSON_TABLE(p_ids, '$[*]' COLUMNS (
        number BIGINT PATH '$[0]', name VARCHAR(256) PATH '$[1]')) j
      JOIN tenure_message m ON m.queue = p_queue AND m.line = 2
        AND IF(UNHEX(j.name) IS NULL, m.number = j.number AND m.name IS NULL, m.name = UNHEX(j.name)); -- null: see tenure_renew
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET l_end = 1;
    IF p_ids IS NULL THEN OPEN oldest; ELSE OPEN named; END IF;
    letters: LOOP
      SET l_end = 0;
      IF p_ids IS NULL THEN FETCH oldest INTO l_number; ELSE FETCH named INTO l_number; END IF;
      IF l_end THEN LEAVE letters; END IF;
      CALL tenure_queue_take(l_number);
      IF p_delay IS NULL THEN
        DELETE FROM tenure_message WHERE number = l_number AND line = 2;
      ELSE
        UPDATE tenure_message SET line = 0, leased = 0, due = t + p_delay, attempt = 0, doom = NULL, cause = 5, expires = NULL
          WHERE number = l_number AND line = 2;
      END IF;
      SET l_moved = l_moved + (ROW_COUNT() > 0); -- one may be named twice
    END LOOP;
  END;
  IF p_ids IS NULL THEN
    SELECT EXISTS (SELECT 1 FROM tenure_message WHERE queue = p_queue AND line = 2) INTO l_more;
  END IF;
  UPDATE tenure_queue SET dead = GREATEST(dead - l_moved, 0) WHERE name = p_queue;
  COMMIT;
  SELECT l_moved, l_more;
END
