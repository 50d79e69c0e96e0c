-- The next p_max names from p_from on, in the order of their bytes; of a free one only the name.
DROP PROCEDURE IF EXISTS tenure_held
//
CREATE PROCEDURE tenure_held(p_from VARBINARY(513), p_max INT)
BEGIN
  DECLARE t BIGINT DEFAULT {now};
  SELECT label, owner, IF(until > t, first, NULL), depth, t - since, until - t, name FROM tenure_lock
    WHERE name >= p_from ORDER BY name LIMIT p_max;
END
//
-- For the doctor. A row for each of up to ten locks whose lease has ended and whose row the transaction of a user keeps, of the 500 whose
-- leases ended last: its name. If there are any, a row for each of up to ten open transactions that keep rows: null, its thread, its age
-- in seconds; a thread of -1 if the owner of this procedure may not see them.
DROP PROCEDURE IF EXISTS tenure_kept
//
CREATE PROCEDURE tenure_kept()
BEGIN
  DECLARE l_name VARBINARY(512);
  DECLARE l_end, l_taken, l_kept INT DEFAULT 0;
  DECLARE t BIGINT DEFAULT {now};
  DECLARE c CURSOR FOR SELECT name FROM tenure_lock WHERE until BETWEEN 1 AND t ORDER BY until DESC LIMIT 500;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET l_end = 1;
  DECLARE EXIT HANDLER FOR 1227 SELECT NULL, -1, 0;
  OPEN c;
  names: LOOP
    SET l_end = 0;
    FETCH c INTO l_name;
    IF l_end OR l_kept = 10 THEN LEAVE names; END IF;
    CALL tenure_lock_take(l_name, l_taken);
    IF l_taken = -2 THEN
      SET l_kept = l_kept + 1;
      SELECT l_name, 0, 0;
    END IF;
  END LOOP;
  CLOSE c;
  IF l_kept THEN
    -- These times are of the system's zone.
    SELECT NULL, trx_mysql_thread_id, TIMESTAMPDIFF(SECOND, CONVERT_TZ(trx_started, 'SYSTEM', '+00:00'), UTC_TIMESTAMP())
      FROM information_schema.innodb_trx WHERE trx_rows_locked > 0 ORDER BY trx_started LIMIT 10;
  END IF;
END
