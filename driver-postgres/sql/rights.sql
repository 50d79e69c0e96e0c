-- Rights: the functions that a driver and its users call run with the rights of the schema's owner, by names that no other user
-- can redirect. No other user has rights on a table, or on the parts that these functions share.
DO $$
DECLARE
  f record;
  inner_ones text[] := ARRAY['us', 'claim', 'fresh', 'guard_key', 'unguarded', 'lockable', 'sweep', 'turn', 'leave', 'queue_now', 'queue_tick', 'queue_lock', 'queue_try_key',
    'queue_standing', 'queue_tell', 'queue_free', 'queue_bury', 'queue_fences', 'queue_room', 'queue_hold',
    'queue_settle', 'queue_dead_chosen'];
BEGIN
  FOR f IN SELECT p.oid::regprocedure AS signature, p.proname FROM pg_proc p WHERE p.pronamespace = 'tenure'::regnamespace LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f.signature);
    IF NOT f.proname = ANY (inner_ones) THEN
      EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER', f.signature);
      EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, pg_temp', f.signature);
      IF f.proname <> 'guard' AND f.proname <> 'push' THEN
        EXECUTE format('ALTER FUNCTION %s SET lock_timeout = ''3s''', f.signature);
      END IF;
    END IF;
  END LOOP;
END $$;

-- A renewal that waits longer is repeated without the rows that others keep locked.
ALTER FUNCTION tenure.renew SET lock_timeout = '200ms';
ALTER FUNCTION tenure.renew_hold SET lock_timeout = '200ms';

-- Planned once for each session, by the order of its index: with the numbers of a request at hand, the planner would do it anew each
-- time, which takes longer than the work.
ALTER FUNCTION tenure.queue_turn SET plan_cache_mode = force_generic_plan;
ALTER FUNCTION tenure.queue_turn SET enable_sort = off;
ALTER FUNCTION tenure.queue_turn SET enable_seqscan = off;
ALTER FUNCTION tenure.queue_turn SET enable_hashjoin = off;
ALTER FUNCTION tenure.queue_turn SET jit = off;
-- By their indexes, also before the table has been analysed. A way that is switched off counts as dear: without the last line such a
-- statement is compiled, which takes most of a second.
ALTER FUNCTION tenure.queue_purge SET enable_seqscan = off;
ALTER FUNCTION tenure.queue_purge SET enable_bitmapscan = off;
ALTER FUNCTION tenure.queue_names SET enable_seqscan = off;
ALTER FUNCTION tenure.queue_names SET enable_bitmapscan = off;
ALTER FUNCTION tenure.queue_purge SET jit = off;
ALTER FUNCTION tenure.queue_names SET jit = off;
ALTER FUNCTION tenure.queue_push SET plan_cache_mode = force_generic_plan;
