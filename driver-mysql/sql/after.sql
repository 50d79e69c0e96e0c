-- Brings messages of version 1 over: see before.sql.

DROP PROCEDURE IF EXISTS tenure_after
//
CREATE PROCEDURE tenure_after()
BEGIN
  IF EXISTS (SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'tenure_message_1') THEN
    START TRANSACTION;
    INSERT INTO tenure_queue (name, fence, paused, in_flight, deliveries, span, step, full_at, dead)
      SELECT name, fence, paused, in_flight, deliveries, span, step, full_at,
        (SELECT COUNT(*) FROM tenure_message_1 m WHERE m.queue = q.number AND m.line = 2) FROM tenure_queue_1 q
      ON DUPLICATE KEY UPDATE fence = VALUES(fence), paused = VALUES(paused), in_flight = VALUES(in_flight),
        deliveries = VALUES(deliveries), span = VALUES(span), step = VALUES(step), dead = VALUES(dead);
    INSERT INTO tenure_message (number, queue, line, leased, due, pushed, delivery, late, attempt, attempts, cause, told, doom, expires,
        known_for, name, ckey, lck, reason, recurrence, payload)
      SELECT m.number, q.name, line, leased, due, pushed, delivery, late, attempt, attempts, cause, told, doom, expires, known_for, m.name,
        ckey, lck, reason, recurrence, payload FROM tenure_message_1 m JOIN tenure_queue_1 q ON q.number = m.queue;
    INSERT IGNORE INTO tenure_settled (queue, name, until)
      SELECT q.name, s.name, until FROM tenure_settled_1 s JOIN tenure_queue_1 q ON q.number = s.queue;
    DELETE FROM tenure_message_1;
    DELETE FROM tenure_settled_1;
    DELETE FROM tenure_queue_1;
    COMMIT;
    DROP TABLE tenure_message_1, tenure_settled_1, tenure_queue_1;
  END IF;
END
//
CALL tenure_after()
//
DROP PROCEDURE tenure_after
//
DROP PROCEDURE IF EXISTS tenure_queue_number
