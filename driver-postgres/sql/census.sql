-- The list of held locks. A schema that was made without it works as before, and gets it by these statements.
--
-- The next p_max names from p_from on, in the order of their bytes; of one that nobody holds the name alone.
CREATE OR REPLACE FUNCTION tenure.held(p_from bytea, p_max integer, OUT label bytea, OUT owner text, OUT fence bigint,
  OUT depth integer, OUT held_for bigint, OUT remaining bigint, OUT waiters bigint, OUT name bytea)
RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE t bigint := tenure.us();
BEGIN
  RETURN QUERY
    SELECT h.label, h.owner, h.first, cardinality(h.entries), t - h.since, h.until - t,
      CASE WHEN h.first IS NULL THEN 0
        ELSE (SELECT count(*) FROM tenure.waiter x WHERE x.name = r.name AND x.present > t) END, r.name
      FROM (SELECT l.name FROM tenure.lock l WHERE l.name >= p_from ORDER BY l.name LIMIT p_max) r
      LEFT JOIN tenure.lock h ON h.name = r.name AND h.entries <> '{}' AND h.until > t
      ORDER BY r.name;
END $$;
REVOKE ALL ON FUNCTION tenure.held(bytea, integer) FROM PUBLIC;
ALTER FUNCTION tenure.held(bytea, integer) SECURITY DEFINER;
ALTER FUNCTION tenure.held(bytea, integer) SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION tenure.held(bytea, integer) SET lock_timeout = '3s';
