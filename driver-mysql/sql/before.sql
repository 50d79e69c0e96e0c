-- What version 1 had in other forms. Each step may end half-way, and is done again by the next who migrates.

DROP PROCEDURE IF EXISTS tenure_before
//
CREATE PROCEDURE tenure_before()
BEGIN
  -- Messages had the number of their queue, and a unique index of names.
  IF EXISTS (SELECT 1 FROM information_schema.COLUMNS
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'tenure_message' AND COLUMN_NAME = 'queue' AND DATA_TYPE = 'int') THEN
    RENAME TABLE tenure_queue TO tenure_queue_1, tenure_message TO tenure_message_1, tenure_settled TO tenure_settled_1;
  END IF;
  -- Idle names had no index.
  IF EXISTS (SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'tenure_lock')
    AND NOT EXISTS (SELECT 1 FROM information_schema.COLUMNS
      WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'tenure_lock' AND COLUMN_NAME = 'day') THEN
    ALTER TABLE tenure_lock ADD COLUMN day INT AS (GREATEST(until, fence) DIV 86400000000) STORED, ADD KEY idle (day);
  END IF;
END
//
CALL tenure_before()
//
DROP PROCEDURE tenure_before
