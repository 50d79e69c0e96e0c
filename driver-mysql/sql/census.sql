-- The next p_max names from p_from on, in the order of their bytes; of one that nobody holds the name alone.
DROP PROCEDURE IF EXISTS tenure_held
//
CREATE PROCEDURE tenure_held(p_from VARBINARY(513), p_max INT)
BEGIN
  DECLARE t BIGINT DEFAULT {now};
  SELECT label, owner, IF(until > t, first, NULL), depth, t - since, until - t, name FROM tenure_lock
    WHERE name >= p_from ORDER BY name LIMIT p_max;
END
