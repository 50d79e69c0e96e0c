-- Locks: who holds a name, and which tokens were abandoned. All times are microseconds of the server's clock.
--
-- A name is free when its lease has ended: `until` is then 0, by the holder's own word, or in the past. Each write of a row
-- is conditional, and a procedure that hits nothing looks again. Nothing here is a function: a server with a binary log makes
-- functions for administrators only.
--
-- {now} is the clock: SYSDATE, since NOW is that of the CALL and does not advance while it waits; less the zone of the
-- session, which is the difference of NOW and UTC_TIMESTAMP.

CREATE TABLE IF NOT EXISTS tenure_lock (
  name    VARBINARY(512) NOT NULL PRIMARY KEY,
  fence   BIGINT         NOT NULL,            -- the last one given, reserved ones included
  first   BIGINT         NOT NULL,            -- the first of the holder's
  token   VARBINARY(32)  NOT NULL,            -- of the grant
  owner   VARBINARY(32)  NULL,                -- of a re-entrant lock
  depth   INT            NOT NULL DEFAULT 1,
  entries BLOB           NULL,                -- of a re-entrant lock: for each entry its token, a colon, its ttl, and a comma
  since   BIGINT         NOT NULL,
  until   BIGINT         NOT NULL,
  reported BIGINT         NOT NULL,            -- the ttl of the grant
  label   VARBINARY(128) NULL,                -- UTF-8, whatever the character set of the database; also zero bytes
  day     INT            AS (GREATEST(until, fence) DIV 86400000000) STORED, -- when it was used last
  KEY idle (day)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
//
CREATE TABLE IF NOT EXISTS tenure_tombstone (
  name VARBINARY(512) NOT NULL, token VARBINARY(32) NOT NULL, until BIGINT NOT NULL, PRIMARY KEY (name, token), KEY (until)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
//
-- A demoted server refuses writes, but not to the rights with which procedures may run here. A hold that it renewed would be granted
-- again by its successor.
DROP PROCEDURE IF EXISTS tenure_writable
//
CREATE PROCEDURE tenure_writable()
BEGIN
  IF CONCAT(@@GLOBAL.read_only) NOT IN ('0', 'OFF') THEN
    SIGNAL SQLSTATE 'TN003' SET MESSAGE_TEXT = 'the server is read-only';
  END IF;
END
//
-- Locks the row of a name, as part of the caller's transaction, and waits no longer than for those who only look at it. 1 locked, 0 no
-- such row, -2 the transaction of a user keeps the row.
DROP PROCEDURE IF EXISTS tenure_lock_take
//
CREATE PROCEDURE tenure_lock_take(p_name VARBINARY(512), OUT p_taken INT)
BEGIN
  DECLARE l_tries INT DEFAULT 0;
  attempt: LOOP
    SET p_taken = 0, l_tries = l_tries + 1;
    SELECT 1 INTO p_taken FROM tenure_lock WHERE name = p_name FOR UPDATE SKIP LOCKED;
    IF p_taken THEN LEAVE attempt; END IF;
    SELECT -2 INTO p_taken FROM tenure_lock WHERE name = p_name;
    IF NOT p_taken OR l_tries > 4 THEN LEAVE attempt; END IF;
    DO SLEEP(0.002); -- until the other look has ended
  END LOOP;
END
//
-- Ends a plain hold, or takes an entry out of a re-entrant one, as part of the caller's transaction: how many are left, -1 if there is
-- none, -2 if the transaction of a user keeps the row.
DROP PROCEDURE IF EXISTS tenure_leave
//
CREATE PROCEDURE tenure_leave(p_name VARBINARY(512), p_owner VARBINARY(32), p_token VARBINARY(32), OUT p_rest INT)
BEGIN
  DECLARE l_entries BLOB;
  DECLARE l_at, l_depth, l_taken INT DEFAULT 0;
  -- A look first: the row of another's hold is not locked.
  SELECT COUNT(*) INTO l_taken FROM tenure_lock
    WHERE name = p_name AND owner <=> p_owner AND (owner IS NOT NULL OR token = p_token) AND until > {now};
  IF l_taken THEN CALL tenure_lock_take(p_name, l_taken); END IF;
  SET p_rest = IF(l_taken = -2, -2, -1);
  IF l_taken = 1 AND p_owner IS NULL THEN
    UPDATE tenure_lock SET until = 0 WHERE name = p_name AND token = p_token AND owner IS NULL AND until > {now};
    SET p_rest = IF(ROW_COUNT() > 0, 0, -1);
  ELSEIF l_taken = 1 THEN
    SELECT entries, depth INTO l_entries, l_depth FROM tenure_lock WHERE name = p_name AND owner = p_owner AND until > {now};
    SET l_at = COALESCE(LOCATE(CONCAT(p_token, ':'), l_entries), 0);
    IF l_at > 0 THEN
      SET p_rest = l_depth - 1;
      UPDATE tenure_lock SET depth = p_rest, until = IF(p_rest = 0, 0, until),
        entries = CONCAT(LEFT(l_entries, l_at - 1), SUBSTRING(l_entries, LOCATE(',', l_entries, l_at) + 1)) WHERE name = p_name;
    END IF;
  END IF;
END
//
-- Removes two names that were last used before a day, more than a day ago: the clock is past their fences. Each new name does, so
-- that idle ones become fewer.
DROP PROCEDURE IF EXISTS tenure_lock_sweep
//
CREATE PROCEDURE tenure_lock_sweep(p_day INT)
BEGIN
  DECLARE l_name VARBINARY(512);
  DECLARE l_left INT DEFAULT 2;
  START TRANSACTION;
  WHILE l_left > 0 DO
    SET l_name = NULL, l_left = l_left - 1;
    SELECT name INTO l_name FROM tenure_lock WHERE day < p_day ORDER BY day LIMIT 1 FOR UPDATE SKIP LOCKED;
    DELETE FROM tenure_lock WHERE name = l_name;
  END WHILE;
  COMMIT;
END
//
-- Takes a name, enters it once more, or returns that it is busy. One row: code, fence, ttl, fences, depth, recheck.
-- code: 1 granted now, 2 granted by an earlier request, 3 busy; -1 abandoned, -4 too deep.
DROP PROCEDURE IF EXISTS tenure_acquire
//
CREATE PROCEDURE tenure_acquire(p_name VARBINARY(512), p_owner VARBINARY(32), p_token VARBINARY(32), p_ttl BIGINT, p_fences INT,
  p_label VARBINARY(128), p_max_depth INT, p_floor BIGINT)
main: BEGIN
  DECLARE l_found, l_tries, l_rows, l_depth, l_rest, l_buried, l_known, l_granted INT DEFAULT 0;
  DECLARE l_token, l_owner VARBINARY(32);
  DECLARE l_entries BLOB;
  DECLARE l_idle INT DEFAULT 0;
  DECLARE l_fence, l_first, l_until, l_reported, t BIGINT;
  DECLARE CONTINUE HANDLER FOR 1062 SET l_known = 1;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
    ROLLBACK;
    -- Behind the commit a failure is no refusal: the caller has to undo the grant.
    IF l_granted THEN
      SIGNAL SQLSTATE 'TN002' SET MESSAGE_TEXT = 'the lock was granted, and what followed failed';
    END IF;
    RESIGNAL;
  END;
  attempt: LOOP
    SET l_found = 0, l_known = 0, l_tries = l_tries + 1;
    -- A look first: a request that finds the lock taken writes nothing, waits for no row, and flushes nothing.
    SELECT 1, fence, first, token, owner, until, reported INTO l_found, l_fence, l_first, l_token, l_owner, l_until, l_reported
      FROM tenure_lock WHERE name = p_name;
    SET t = {now};
    IF l_found AND l_until > t THEN
      IF p_owner IS NULL AND l_owner IS NULL AND l_token = p_token THEN
        SELECT 2, l_first, l_reported, 1, 1, 0; LEAVE main;
      END IF;
      IF p_owner IS NULL OR l_owner IS NULL OR l_owner <> p_owner THEN
        SELECT 3, 0, 0, 0, 0, l_until - t; LEAVE main;
      END IF;
      CALL tenure_writable();
      START TRANSACTION;
      SET l_rows = 0;
      SELECT 1, entries, depth, until INTO l_rows, l_entries, l_depth, l_until FROM tenure_lock
        WHERE name = p_name AND owner = p_owner AND first = l_first AND until > {now} FOR UPDATE;
      -- Looked at again under the lock of the row: the hold may have ended since the first look.
      IF l_rows = 0 THEN ROLLBACK; ITERATE attempt; END IF;
      SET l_rows = LOCATE(CONCAT(p_token, ':'), l_entries);
      -- The entry is there already: its answer was lost, and the depth must not grow.
      IF l_rows > 0 THEN
        ROLLBACK;
        SELECT 2, l_first, CAST(SUBSTRING_INDEX(SUBSTRING(l_entries, l_rows + LENGTH(p_token) + 1), ',', 1) AS SIGNED), 1, l_depth, 0;
        LEAVE main;
      END IF;
      IF l_depth >= p_max_depth THEN ROLLBACK; SELECT -4, 0, 0, 0, 0, 0; LEAVE main; END IF;
      SET t = {now}, l_reported = GREATEST(l_until, t + p_ttl) - t, l_depth = l_depth + 1;
      UPDATE tenure_lock SET until = t + l_reported, depth = l_depth, entries = CONCAT(l_entries, p_token, ':', l_reported, ',')
        WHERE name = p_name;
      COMMIT;
      SET l_granted = 1;
      LEAVE attempt;
    END IF;
    CALL tenure_writable();
    SET l_depth = 1, l_reported = p_ttl, l_entries = IF(p_owner IS NULL, NULL, CONCAT(p_token, ':', p_ttl, ','));
    IF NOT l_found THEN
      SELECT EXISTS (SELECT 1 FROM tenure_lock WHERE day < t DIV 86400000000 - 1) INTO l_idle;
      IF l_idle THEN CALL tenure_lock_sweep(t DIV 86400000000 - 1); END IF;
      SET l_first = GREATEST(t, p_floor + 1);
      -- No lock of a missing row before it: two of those wait for each other's gap.
      INSERT INTO tenure_lock (name, fence, first, token, owner, entries, since, until, reported, label)
        VALUES (p_name, l_first + p_fences - 1, l_first, p_token, p_owner, l_entries, t, t + p_ttl, p_ttl, p_label);
      -- A row that is there already was made by a faster request, whose hold the next look finds.
      SET l_granted = NOT l_known;
    ELSEIF l_until > 0 THEN
      -- Without the holder's word: not while it is inside a transaction of its own that it guards.
      START TRANSACTION;
      SET l_rows = 0;
      SELECT 1 INTO l_rows FROM tenure_lock WHERE name = p_name AND fence = l_fence AND until = l_until FOR UPDATE SKIP LOCKED;
      IF l_rows = 0 THEN
        ROLLBACK;
        IF l_tries < 3 THEN ITERATE attempt; END IF;
        SELECT 3, 0, 0, 0, 0, 100000; LEAVE main;
      END IF;
      SET l_first = GREATEST(l_fence + 1, t, p_floor + 1);
      UPDATE tenure_lock SET fence = l_first + p_fences - 1, first = l_first, token = p_token, owner = p_owner, depth = 1,
        entries = l_entries, since = t, until = t + p_ttl, reported = p_ttl, label = p_label WHERE name = p_name;
      COMMIT;
      SET l_granted = 1;
    ELSE
      -- Released by its holder, so no transaction guards it: one conditional write, which only one of several requests
      -- hits.
      SET l_first = GREATEST(l_fence + 1, t, p_floor + 1);
      UPDATE tenure_lock SET fence = l_first + p_fences - 1, first = l_first, token = p_token, owner = p_owner, depth = 1,
        entries = l_entries, since = t, until = t + p_ttl, reported = p_ttl, label = p_label
        WHERE name = p_name AND fence = l_fence AND until = 0;
      SET l_granted = ROW_COUNT() > 0;
    END IF;
    IF l_granted THEN LEAVE attempt; END IF;
  END LOOP;
  -- A look at the tombstones last: an abandonment has written its own before it looks at the lock, and a request between the two
  -- is waited for.
  SELECT COUNT(*) INTO l_buried FROM tenure_tombstone WHERE name = p_name AND token = p_token AND until > t LOCK IN SHARE MODE;
  IF l_buried THEN
    START TRANSACTION;
    CALL tenure_leave(p_name, p_owner, p_token, l_rest);
    COMMIT;
    SELECT -1, 0, 0, 0, 0, 0; LEAVE main;
  END IF;
  SELECT 1, l_first, l_reported, IF(l_depth > 1, 1, p_fences), l_depth, 0;
END
//
-- A JSON null that is read as text is NULL on MariaDB and the text 'null' on MySQL; no owner is called that.
-- Holds are a JSON array of [name, owner or null, token or null, fence or null], the name in hexadecimal. One row, with a number for
-- each, in order: what is left of its lease; -1 lost, -2 a transaction of a user keeps the row.
DROP PROCEDURE IF EXISTS tenure_renew
//
CREATE PROCEDURE tenure_renew(p_holds LONGTEXT CHARACTER SET utf8mb4, p_ttl BIGINT)
BEGIN
  DECLARE l_name VARBINARY(512);
  DECLARE l_owner, l_token VARBINARY(32);
  DECLARE l_fence, l_until, t BIGINT;
  DECLARE l_end, l_found, l_there, l_tries INT DEFAULT 0;
  DECLARE l_left LONGTEXT CHARACTER SET utf8mb4 DEFAULT '';
  DECLARE c CURSOR FOR SELECT UNHEX(j.name), NULLIF(j.owner, 'null'), j.token, j.fence FROM JSON_TABLE(p_holds, '$[*]' COLUMNS (
    name VARCHAR(1024) PATH '$[0]', owner VARCHAR(32) PATH '$[1]', token VARCHAR(32) PATH '$[2]', fence BIGINT PATH '$[3]')) j;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET l_end = 1;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  CALL tenure_writable();
  OPEN c;
  START TRANSACTION;
  holds: LOOP
    SET l_end = 0;
    FETCH c INTO l_name, l_owner, l_token, l_fence;
    IF l_end THEN LEAVE holds; END IF;
    SET l_tries = 0;
    attempt: LOOP
      SET l_found = 0, l_there = 0, l_tries = l_tries + 1;
      SELECT 1, until INTO l_found, l_until FROM tenure_lock WHERE name = l_name AND until > {now}
        AND IF(l_owner IS NULL, owner IS NULL AND token = l_token, owner = l_owner AND first = l_fence) FOR UPDATE SKIP LOCKED;
      IF l_found THEN LEAVE attempt; END IF;
      SELECT 1 INTO l_there FROM tenure_lock WHERE name = l_name AND until > {now}
        AND IF(l_owner IS NULL, owner IS NULL AND token = l_token, owner = l_owner AND first = l_fence);
      IF NOT l_there OR l_tries > 4 THEN LEAVE attempt; END IF;
      DO SLEEP(0.002); -- until the reader of the row has seen that the row is another's
    END LOOP;
    IF l_found THEN
      SET t = {now};
      UPDATE tenure_lock SET until = GREATEST(l_until, t + p_ttl) WHERE name = l_name;
      SET l_left = CONCAT(l_left, GREATEST(l_until, t + p_ttl) - t, ',');
    ELSE
      SET l_left = CONCAT(l_left, IF(l_there, -2, -1), ',');
    END IF;
  END LOOP;
  CLOSE c;
  COMMIT;
  SELECT l_left;
END
//
-- How many entries are left, 0 when the name is free now; -1 if there was no such hold, -2 the transaction of a user keeps the row.
DROP PROCEDURE IF EXISTS tenure_release
//
CREATE PROCEDURE tenure_release(p_name VARBINARY(512), p_owner VARBINARY(32), p_token VARBINARY(32))
BEGIN
  DECLARE l_rest INT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  CALL tenure_writable();
  START TRANSACTION;
  CALL tenure_leave(p_name, p_owner, p_token, l_rest);
  COMMIT;
  SELECT l_rest;
END
//
-- Undoes whatever the token asked for, and refuses what it may still ask for: 0, or -2 where the latter alone was done.
DROP PROCEDURE IF EXISTS tenure_abandon
//
CREATE PROCEDURE tenure_abandon(p_name VARBINARY(512), p_owner VARBINARY(32), p_token VARBINARY(32), p_for BIGINT)
BEGIN
  DECLARE l_rest, l_old INT DEFAULT 0;
  DECLARE t BIGINT DEFAULT {now};
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  CALL tenure_writable();
  START TRANSACTION;
  -- In this order: see tenure_acquire.
  INSERT INTO tenure_tombstone (name, token, until) VALUES (p_name, p_token, t + p_for) ON DUPLICATE KEY UPDATE until = t + p_for;
  CALL tenure_leave(p_name, p_owner, p_token, l_rest);
  COMMIT;
  SELECT COUNT(*) INTO l_old FROM (SELECT until FROM tenure_tombstone WHERE until <= t ORDER BY until LIMIT 1) z;
  IF l_old THEN DELETE FROM tenure_tombstone WHERE until <= t ORDER BY until LIMIT 8; END IF;
  SELECT IF(l_rest = -2, -2, 0);
END
//
-- 1 released, 0 not held, -1 held by another than the expected hold, -2 the transaction of a user keeps the row.
DROP PROCEDURE IF EXISTS tenure_force_release
//
CREATE PROCEDURE tenure_force_release(p_name VARBINARY(512), p_expected BIGINT)
BEGIN
  DECLARE l_taken, l_released INT DEFAULT 0;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  CALL tenure_writable();
  START TRANSACTION;
  SELECT COUNT(*) INTO l_taken FROM tenure_lock WHERE name = p_name AND until > 0 AND first = COALESCE(p_expected, first);
  IF l_taken THEN CALL tenure_lock_take(p_name, l_taken); END IF;
  -- A row that the transaction of a user keeps is guarded by it: that hold cannot be taken away now.
  IF l_taken <> -2 THEN
    UPDATE tenure_lock SET until = 0 WHERE l_taken AND name = p_name AND until > {now} AND first = COALESCE(p_expected, first);
    SET l_released = ROW_COUNT();
    IF NOT l_released THEN SELECT -COUNT(*) INTO l_taken FROM tenure_lock WHERE name = p_name AND until > {now}; END IF;
  END IF;
  COMMIT;
  SELECT IF(l_released, 1, l_taken);
END
//
-- No row if it is free. The remaining lease is null if the lease has ended, and a transaction of a user keeps the row.
DROP PROCEDURE IF EXISTS tenure_inspect
//
CREATE PROCEDURE tenure_inspect(p_name VARBINARY(512))
BEGIN
  DECLARE l_taken INT DEFAULT 0;
  DECLARE t BIGINT DEFAULT {now};
  SELECT COUNT(*) INTO l_taken FROM tenure_lock WHERE name = p_name AND until BETWEEN 1 AND t;
  IF l_taken THEN CALL tenure_lock_take(p_name, l_taken); END IF;
  SELECT label, owner, first, depth, t - since, IF(until > t, until - t, NULL) FROM tenure_lock
    WHERE name = p_name AND until > IF(l_taken = -2, 0, t);
END
//
-- Called in a user's transaction. The name is not granted to another holder before that transaction has ended; XA PREPARE does not
-- end it. Each fence of a grant is accepted. A refusal rolls the transaction back, as a deadlock does, so it leaves no row locked.
-- SQLSTATE TN001: this fence does not hold the name any more. TN002: the transaction's snapshot is older than the grant, so it cannot
-- see what earlier holders wrote.
DROP PROCEDURE IF EXISTS tenure_guard
//
CREATE PROCEDURE tenure_guard(p_name VARBINARY(512), p_fence BIGINT)
BEGIN
  DECLARE l_seen, l_first, l_last, l_until BIGINT DEFAULT 0;
  -- What the transaction sees: under REPEATABLE READ the row as of its first read. Fences grow with each grant.
  SELECT fence INTO l_seen FROM tenure_lock WHERE name = p_name;
  -- The latest row. The lock is exclusive, since XA PREPARE gives shared ones back.
  SELECT first, fence, until INTO l_first, l_last, l_until FROM tenure_lock WHERE name = p_name FOR UPDATE;
  IF NOT (p_fence BETWEEN l_first AND l_last AND l_until > {now}) THEN
    ROLLBACK;
    SIGNAL SQLSTATE 'TN001' SET MESSAGE_TEXT = 'that fence does not hold this lock any more';
  ELSEIF l_seen < l_first THEN
    ROLLBACK;
    SIGNAL SQLSTATE 'TN002' SET MESSAGE_TEXT = 'this transaction reads as of before the grant; begin it after the grant';
  END IF;
END
