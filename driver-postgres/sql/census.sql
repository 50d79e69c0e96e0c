-- The list of held locks. A schema that was made without it works as before, and gets it by these statements.
--
-- The next p_max names from p_from on, in the order of their bytes; of a free one only the name. A lock whose lease has ended
-- is held while a transaction that it guards is open; nothing is left of its lease then.
CREATE OR REPLACE FUNCTION tenure.held(p_from bytea, p_max integer, OUT label bytea, OUT owner text, OUT fence bigint,
  OUT depth integer, OUT held_for bigint, OUT remaining bigint, OUT waiters bigint, OUT name bytea)
RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE t bigint := tenure.us();
BEGIN
  RETURN QUERY
    WITH guarded AS MATERIALIZED (
      SELECT k.classid::bigint << 32 | k.objid::bigint AS key FROM pg_locks k
        WHERE k.locktype = 'advisory' AND k.objsubid = 1 AND k.mode = 'ExclusiveLock' AND k.granted)
    SELECT h.label, h.owner, h.first, cardinality(h.entries), t - h.since, CASE WHEN h.until > t THEN h.until - t END,
      CASE WHEN h.first IS NULL THEN 0
        ELSE (SELECT count(*) FROM tenure.waiter x WHERE x.name = r.name AND x.present > t) END, r.name
      FROM (SELECT l.name FROM tenure.lock l WHERE l.name >= p_from ORDER BY l.name LIMIT p_max) r
      LEFT JOIN tenure.lock h ON h.name = r.name AND h.entries <> '{}'
        AND (h.until > t OR hashtextextended(encode(h.name, 'hex'), 1952804454) IN (SELECT g.key FROM guarded g))
      ORDER BY r.name;
END $$;
REVOKE ALL ON FUNCTION tenure.held(bytea, integer) FROM PUBLIC;
ALTER FUNCTION tenure.held(bytea, integer) SECURITY DEFINER;
ALTER FUNCTION tenure.held(bytea, integer) SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION tenure.held(bytea, integer) SET lock_timeout = '3s';
