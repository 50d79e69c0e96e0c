-- Permits: the holds of semaphores and read-write locks. All times are microseconds of the server's clock.
--
-- A name here is a letter, s for a semaphore or r for a read-write lock, and the bytes of the name itself.
--
-- There is no line: waiters poll. One waiter of a name, whose share is heavier than 1, leaves a mark. While the mark lasts, no request
-- is granted that would delay that waiter: it is the one place of a line that a name has. Without a mark, each procedure makes the same
-- decisions as the rule of the crate tenure-core, rules::permits, in the same order.
--
-- A grant, a change of weight and an abandonment lock the row of the name. A renewal and an end write the row of their hold alone: the
-- one changes nothing but the end of a lease, and only to a later time, and the other only frees.

CREATE TABLE IF NOT EXISTS tenure_permit (
  name            VARBINARY(513) NOT NULL PRIMARY KEY,
  fence           BIGINT         NOT NULL,       -- the last one given
  wanted_token    VARBINARY(32)  NULL,           -- the waiter that left a mark
  wanted_weight   BIGINT         NULL,
  wanted_capacity BIGINT         NULL,
  wanted_until    BIGINT         NOT NULL DEFAULT 0,
  grow_token      VARBINARY(32)  NULL,           -- the hold that waits to weigh more
  grow_until      BIGINT         NOT NULL DEFAULT 0,
  seen            BIGINT         NOT NULL,       -- when it was used last
  day             INT            AS (GREATEST(seen, fence) DIV 86400000000) STORED,
  KEY idle (day)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
//
CREATE TABLE IF NOT EXISTS tenure_permit_hold (
  name     VARBINARY(513) NOT NULL,
  token    VARBINARY(32)  NOT NULL,
  weight   BIGINT         NOT NULL,
  capacity BIGINT         NOT NULL,
  fence    BIGINT         NOT NULL,
  since    BIGINT         NOT NULL,
  until    BIGINT         NOT NULL,
  ttl      BIGINT         NOT NULL,              -- reported with the grant
  step     BIGINT         NOT NULL,              -- the number of the last change of weight
  label    VARBINARY(128) NULL,
  PRIMARY KEY (name, token)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
//
CREATE TABLE IF NOT EXISTS tenure_permit_tombstone (
  name VARBINARY(513) NOT NULL, token VARBINARY(32) NOT NULL, until BIGINT NOT NULL, PRIMARY KEY (name, token), KEY (until)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
//
-- Locks the row of a name as part of the caller's transaction, removes ended holds, and returns the clock, the last fence, the weight
-- and the number of the holds, and the hold that waits to weigh more. A hold that is being renewed in this moment stays.
DROP PROCEDURE IF EXISTS tenure_permit_take
//
CREATE PROCEDURE tenure_permit_take(p_name VARBINARY(513), OUT p_found INT, OUT p_at BIGINT, OUT p_fence BIGINT, OUT p_used BIGINT,
  OUT p_holders INT, OUT p_grow VARBINARY(32), OUT p_grow_until BIGINT)
BEGIN
  DECLARE l_token VARBINARY(32);
  DECLARE l_weight BIGINT;
  DECLARE l_end, l_ended INT DEFAULT 0;
  DECLARE c CURSOR FOR SELECT token, weight FROM tenure_permit_hold WHERE name = p_name AND until <= p_at FOR UPDATE SKIP LOCKED;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET l_end = 1;
  SET p_found = 0;
  SELECT 1, fence, grow_token, grow_until INTO p_found, p_fence, p_grow, p_grow_until FROM tenure_permit WHERE name = p_name FOR UPDATE;
  SET p_at = {now};
  IF p_found THEN
    SELECT COALESCE(SUM(weight), 0), COUNT(*), COALESCE(SUM(until <= p_at), 0) INTO p_used, p_holders, l_ended
      FROM tenure_permit_hold WHERE name = p_name;
    IF l_ended THEN
      OPEN c;
      holds: LOOP
        SET l_end = 0;
        FETCH c INTO l_token, l_weight;
        IF l_end THEN LEAVE holds; END IF;
        DELETE FROM tenure_permit_hold WHERE name = p_name AND token = l_token;
        SET p_used = p_used - l_weight, p_holders = p_holders - 1;
      END LOOP;
      CLOSE c;
    END IF;
    IF p_grow IS NOT NULL AND (p_grow_until <= p_at
      OR NOT EXISTS (SELECT 1 FROM tenure_permit_hold WHERE name = p_name AND token = p_grow AND until > p_at)) THEN
      SET p_grow = NULL;
    END IF;
  END IF;
END
//
-- The time at which enough leases have ended for a share to fit, if no client gives anything back before: at most the end of the
-- sixteenth. The hold p_but is left out; p_used is the weight of the others, and p_holders their number.
DROP PROCEDURE IF EXISTS tenure_permit_room_at
//
CREATE PROCEDURE tenure_permit_room_at(p_name VARBINARY(513), p_but VARBINARY(32), p_used BIGINT, p_holders INT, p_weight BIGINT,
  p_capacity BIGINT, p_max_holders INT, OUT p_room_at BIGINT)
BEGIN
  DECLARE l_until, l_weight BIGINT;
  DECLARE l_end INT DEFAULT 0;
  DECLARE c CURSOR FOR SELECT until, weight FROM tenure_permit_hold WHERE name = p_name AND NOT token <=> p_but
    ORDER BY until, weight LIMIT 16;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET l_end = 1;
  SET p_room_at = NULL;
  OPEN c;
  holds: LOOP
    FETCH c INTO l_until, l_weight;
    IF l_end THEN LEAVE holds; END IF;
    SET p_used = p_used - l_weight, p_holders = p_holders - 1, p_room_at = l_until;
    IF p_used + p_weight <= p_capacity AND p_holders < p_max_holders THEN LEAVE holds; END IF;
  END LOOP;
  CLOSE c;
END
//
-- Removes two names that were last used before a day, more than a day ago: the clock is past their fences. One with a hold stays, and
-- counts as used now.
DROP PROCEDURE IF EXISTS tenure_permit_sweep
//
CREATE PROCEDURE tenure_permit_sweep(p_at BIGINT)
BEGIN
  DECLARE l_name VARBINARY(513);
  DECLARE l_left INT DEFAULT 2;
  START TRANSACTION;
  WHILE l_left > 0 DO
    SET l_name = NULL, l_left = l_left - 1;
    SELECT name INTO l_name FROM tenure_permit WHERE day < p_at DIV 86400000000 - 1 ORDER BY day LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF EXISTS (SELECT 1 FROM tenure_permit_hold WHERE name = l_name AND until > p_at - 86400000000) THEN
      UPDATE tenure_permit SET seen = p_at WHERE name = l_name;
    ELSE
      DELETE FROM tenure_permit_hold WHERE name = l_name;
      DELETE FROM tenure_permit WHERE name = l_name;
    END IF;
  END WHILE;
  COMMIT;
END
//
-- Takes a share, or returns that it does not fit. One row: code, fence, ttl, place, recheck, clock.
-- code: 1 granted now, 2 granted by an earlier request, 3 busy; -1 abandoned, -5 more than the capacity.
DROP PROCEDURE IF EXISTS tenure_permit_acquire
//
CREATE PROCEDURE tenure_permit_acquire(p_name VARBINARY(513), p_token VARBINARY(32), p_weight BIGINT, p_capacity BIGINT, p_ttl BIGINT,
  p_label VARBINARY(128), p_presence BIGINT, p_max_holders INT, p_floor BIGINT)
BEGIN
  DECLARE l_code, l_found, l_holders, l_buried, l_idle, l_held, l_known, l_before INT DEFAULT 0;
  DECLARE l_fence, l_used, l_grow_until, l_first, l_ttl, l_weight, l_capacity, l_until, l_recheck, t BIGINT;
  DECLARE l_grow, l_marked VARBINARY(32);
  DECLARE CONTINUE HANDLER FOR 1062 SET l_known = 1; -- the row was made by another request in this instant
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  CALL tenure_writable();
  attempt: LOOP
    START TRANSACTION;
    CALL tenure_permit_take(p_name, l_found, t, l_fence, l_used, l_holders, l_grow, l_grow_until);
    IF l_found THEN LEAVE attempt; END IF;
    ROLLBACK;
    SELECT EXISTS (SELECT 1 FROM tenure_permit WHERE day < t DIV 86400000000 - 1) INTO l_idle;
    IF l_idle THEN CALL tenure_permit_sweep(t); END IF;
    INSERT INTO tenure_permit (name, fence, seen) VALUES (p_name, 0, t);
  END LOOP;
  SELECT COUNT(*) INTO l_buried FROM tenure_permit_tombstone WHERE name = p_name AND token = p_token AND until > t;
  SELECT 1, fence, ttl INTO l_held, l_first, l_ttl FROM tenure_permit_hold WHERE name = p_name AND token = p_token;
  IF l_buried THEN
    SET l_code = -1;
  ELSEIF l_held THEN
    SET l_code = 2;
  ELSEIF p_weight < 1 OR p_weight > p_capacity THEN
    SET l_code = -5;
  ELSE
    SELECT wanted_token, wanted_weight, wanted_capacity, wanted_until INTO l_marked, l_weight, l_capacity, l_until
      FROM tenure_permit WHERE name = p_name AND wanted_until > t;
    -- The mark is a place before this request: that waiter has to fit still.
    SET l_before = l_marked IS NOT NULL AND l_marked <> p_token;
    IF NOT l_before THEN SET l_weight = 0, l_capacity = p_capacity; END IF;
    IF l_grow IS NULL AND l_used + p_weight + l_weight <= LEAST(p_capacity, l_capacity) AND l_holders + l_before < p_max_holders THEN
      SET l_code = 1, l_ttl = p_ttl, l_first = GREATEST(l_fence + 1, t, p_floor + 1);
      INSERT INTO tenure_permit_hold (name, token, weight, capacity, fence, since, until, ttl, step, label)
        VALUES (p_name, p_token, p_weight, p_capacity, l_first, t, t + p_ttl, p_ttl, 0, p_label);
      UPDATE tenure_permit SET fence = l_first, seen = t, grow_token = NULL, grow_until = 0,
        wanted_until = IF(wanted_token = p_token, 0, wanted_until), wanted_token = IF(wanted_until = 0, NULL, wanted_token)
        WHERE name = p_name;
    ELSE
      SET l_code = 3;
      IF p_presence IS NOT NULL AND p_weight > 1 AND NOT l_before THEN
        UPDATE tenure_permit SET wanted_token = p_token, wanted_weight = p_weight, wanted_capacity = p_capacity,
          wanted_until = t + p_presence WHERE name = p_name;
      END IF;
      IF l_grow IS NOT NULL THEN
        SET l_recheck = l_grow_until;
      ELSEIF l_before AND l_used + p_weight <= p_capacity AND l_holders < p_max_holders THEN
        SET l_recheck = l_until;
      ELSE
        CALL tenure_permit_room_at(p_name, NULL, l_used, l_holders, p_weight, p_capacity, p_max_holders, l_recheck);
      END IF;
    END IF;
  END IF;
  COMMIT;
  SELECT l_code, l_first, l_ttl, NULL, GREATEST(l_recheck - t, 0), t;
END
//
-- Changes the weight of a hold. One row, as of tenure_permit_acquire.
-- code: 1 changed now, 2 it has that weight, 3 busy; -5 more than the capacity, -6 no such hold, -7 a later change arrived before,
-- -8 another hold waits to weigh more.
DROP PROCEDURE IF EXISTS tenure_permit_resize
//
CREATE PROCEDURE tenure_permit_resize(p_name VARBINARY(513), p_token VARBINARY(32), p_weight BIGINT, p_capacity BIGINT, p_step BIGINT,
  p_presence BIGINT, p_floor BIGINT)
BEGIN
  DECLARE l_code, l_found, l_holders, l_held, l_place INT;
  DECLARE l_fence, l_used, l_grow_until, l_first, l_weight, l_until, l_step, l_recheck, t BIGINT;
  DECLARE l_grow VARBINARY(32);
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  CALL tenure_writable();
  START TRANSACTION;
  CALL tenure_permit_take(p_name, l_found, t, l_fence, l_used, l_holders, l_grow, l_grow_until);
  SELECT 1, fence, weight, until, step INTO l_held, l_first, l_weight, l_until, l_step FROM tenure_permit_hold
    WHERE l_found AND name = p_name AND token = p_token AND until > t;
  IF p_weight < 1 OR p_weight > p_capacity THEN
    SET l_code = -5;
  ELSEIF l_held IS NULL THEN
    SET l_code = -6;
  ELSEIF p_step < l_step THEN
    SET l_code = -7;
  ELSE
    IF l_grow = p_token THEN
      UPDATE tenure_permit SET grow_token = NULL, grow_until = 0 WHERE name = p_name;
      SET l_grow = NULL;
    END IF;
    IF p_weight = l_weight THEN
      SET l_code = 2;
    ELSEIF p_weight < l_weight THEN
      SET l_code = 1;
    ELSEIF l_grow IS NOT NULL THEN
      SET l_code = -8;
    ELSEIF l_used - l_weight + p_weight <= p_capacity THEN
      SET l_code = 1, l_first = GREATEST(l_fence + 1, t, p_floor + 1);
      UPDATE tenure_permit SET fence = l_first, seen = t WHERE name = p_name;
    ELSE
      SET l_code = 3;
      IF p_presence IS NOT NULL THEN
        SET l_place = 0;
        UPDATE tenure_permit SET grow_token = p_token, grow_until = t + p_presence WHERE name = p_name;
      END IF;
      CALL tenure_permit_room_at(p_name, p_token, l_used - l_weight, 0, p_weight, p_capacity, 1, l_recheck);
    END IF;
    IF l_code = 1 THEN
      UPDATE tenure_permit_hold SET weight = p_weight, capacity = p_capacity, step = p_step, fence = l_first
        WHERE name = p_name AND token = p_token;
    ELSEIF p_step > l_step THEN
      UPDATE tenure_permit_hold SET step = p_step WHERE name = p_name AND token = p_token;
    END IF;
  END IF;
  COMMIT;
  SELECT l_code, l_first, l_until - t, l_place, GREATEST(l_recheck - t, 0), t;
END
//
-- Holds are a JSON array of [name, token], the name in hexadecimal. One row, with a number for each, in order: what is left of its
-- lease, or -1 if it is lost.
DROP PROCEDURE IF EXISTS tenure_permit_renew
//
CREATE PROCEDURE tenure_permit_renew(p_holds LONGTEXT CHARACTER SET utf8mb4, p_ttl BIGINT)
BEGIN
  DECLARE l_name VARBINARY(513);
  DECLARE l_token VARBINARY(32);
  DECLARE l_until, t BIGINT;
  DECLARE l_end INT DEFAULT 0;
  DECLARE l_left LONGTEXT CHARACTER SET utf8mb4 DEFAULT '';
  DECLARE c CURSOR FOR SELECT UNHEX(j.name), j.token FROM JSON_TABLE(p_holds, '$[*]' COLUMNS (
    name VARCHAR(1026) PATH '$[0]', token VARCHAR(32) PATH '$[1]')) j;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET l_end = 1;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  CALL tenure_writable();
  OPEN c;
  START TRANSACTION;
  holds: LOOP
    SET l_end = 0;
    FETCH c INTO l_name, l_token;
    IF l_end THEN LEAVE holds; END IF;
    SET l_until = NULL;
    SELECT until INTO l_until FROM tenure_permit_hold WHERE name = l_name AND token = l_token FOR UPDATE;
    SET t = {now};
    IF l_until > t THEN
      UPDATE tenure_permit_hold SET until = GREATEST(l_until, t + p_ttl) WHERE name = l_name AND token = l_token;
      SET l_left = CONCAT(l_left, GREATEST(l_until, t + p_ttl) - t, ',');
    ELSE
      SET l_left = CONCAT(l_left, '-1,');
    END IF;
  END LOOP;
  CLOSE c;
  COMMIT;
  SELECT l_left;
END
//
-- Ends a hold: that of the token, or the one with the fence. 1 it was held, 0 it was not.
DROP PROCEDURE IF EXISTS tenure_permit_end
//
CREATE PROCEDURE tenure_permit_end(p_name VARBINARY(513), p_token VARBINARY(32), p_fence BIGINT)
BEGIN
  CALL tenure_writable();
  IF p_token IS NULL THEN
    SELECT token INTO p_token FROM tenure_permit_hold WHERE name = p_name AND fence = p_fence;
  END IF;
  DELETE FROM tenure_permit_hold WHERE name = p_name AND token = p_token AND fence = COALESCE(p_fence, fence) AND until > {now};
  SELECT ROW_COUNT() > 0;
END
//
-- Undoes every request of the token, and refuses those that arrive later.
DROP PROCEDURE IF EXISTS tenure_permit_abandon
//
CREATE PROCEDURE tenure_permit_abandon(p_name VARBINARY(513), p_token VARBINARY(32), p_for BIGINT)
BEGIN
  DECLARE l_found, l_old, l_known INT DEFAULT 0;
  DECLARE t BIGINT;
  DECLARE CONTINUE HANDLER FOR 1062 SET l_known = 1; -- the row was made by another request in this instant
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  CALL tenure_writable();
  -- The row of the name is locked, so that a request of the token has ended before, or finds the tombstone.
  attempt: LOOP
    START TRANSACTION;
    SELECT 1 INTO l_found FROM tenure_permit WHERE name = p_name FOR UPDATE;
    IF l_found THEN LEAVE attempt; END IF;
    ROLLBACK;
    INSERT INTO tenure_permit (name, fence, seen) VALUES (p_name, 0, {now});
  END LOOP;
  SET t = {now};
  INSERT INTO tenure_permit_tombstone (name, token, until) VALUES (p_name, p_token, t + p_for) ON DUPLICATE KEY UPDATE until = t + p_for;
  DELETE FROM tenure_permit_hold WHERE name = p_name AND token = p_token;
  UPDATE tenure_permit SET wanted_token = NULL, wanted_until = 0 WHERE name = p_name AND wanted_token = p_token;
  COMMIT;
  SELECT COUNT(*) INTO l_old FROM (SELECT until FROM tenure_permit_tombstone WHERE until <= t ORDER BY until LIMIT 1) z;
  IF l_old THEN DELETE FROM tenure_permit_tombstone WHERE until <= t ORDER BY until LIMIT 8; END IF;
  SELECT 0;
END
//
-- The weight of all holds, and the first p_most holders in order of their fences. At least one row, without a holder if there is none.
DROP PROCEDURE IF EXISTS tenure_permit_inspect
//
CREATE PROCEDURE tenure_permit_inspect(p_name VARBINARY(513), p_most BIGINT)
BEGIN
  DECLARE t BIGINT DEFAULT {now};
  SELECT s.used, h.weight, h.capacity, h.fence, t - h.since, h.until - t, h.label
    FROM (SELECT CAST(COALESCE(SUM(weight), 0) AS SIGNED) AS used FROM tenure_permit_hold WHERE name = p_name AND until > t) s
    LEFT JOIN (SELECT * FROM tenure_permit_hold WHERE name = p_name AND until > t ORDER BY fence LIMIT p_most) h ON TRUE
    ORDER BY h.fence;
END
