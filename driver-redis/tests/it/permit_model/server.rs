//! The server's keys of the name, and what has to hold of them whatever happened.

use tenure_core::driver::Family;
use tenure_testkit::{Reply, RespClient};

use super::schedule::NAME;

/// Finds what does not fit, in the server itself.
const LOOK: &str = "
local base, now = KEYS[1], tonumber(ARGV[1])
local function key(letter) return base .. letter end
local R, H, G, Q, W, D = key('r'), key('h'), key('g'), key('q'), key('w'), key('a')
for _, one in ipairs(redis.call('KEYS', '*')) do
  local left = redis.call('PTTL', one)
  if left < 0 and one ~= 'tenure:{fence}' then return one .. ' has no end' end
end
local function same(what, one, other)
  table.sort(one) table.sort(other)
  one, other = table.concat(one, ' '), table.concat(other, ' ')
  return one ~= other and what .. ': ' .. one .. ' / ' .. other
end
local holds, sum, fences, latest = {}, 0, {}, 0
local record = redis.call('HGETALL', R)
for i = 1, #record, 2 do
  if #record[i] == 22 then
    holds[#holds + 1] = record[i]
    local fence, weight = string.match(record[i + 1], '^(%d+);(%d+);')
    sum = sum + weight
    fences[#fences + 1] = record[i] .. fence
  end
end
local wrong = same('holds and ends', holds, redis.call('ZRANGE', H, 0, -1))
local ranked = redis.call('ZRANGE', G, 0, -1, 'WITHSCORES')
local scored = {}
for i = 1, #ranked, 2 do scored[#scored + 1] = ranked[i] .. ranked[i + 1] end
wrong = wrong or same('holds and fences', fences, scored)
if not wrong and (tonumber(redis.call('HGET', R, 'u')) or 0) ~= sum then wrong = 'the weight is not counted' end
if not wrong and #record > 0 and #holds == 0 then wrong = 'a record without holds' end
local last = redis.call('ZRANGE', H, -1, -1, 'WITHSCORES')[2]
for _, one in ipairs({R, H, G}) do
  if last and now + 1000 * redis.call('PTTL', one) < tonumber(last) then wrong = one .. ' ends before a lease' end
end
local line = redis.call('ZRANGE', Q, 0, -1)
wrong = wrong or same('line and presence', line, redis.call('ZRANGE', W, 0, -1))
local terms = {}
for _, one in ipairs(redis.call('HKEYS', D)) do
  if one ~= '#' then terms[#terms + 1] = one end
end
if not wrong and #line == 0 and redis.call('EXISTS', D) == 1 then wrong = 'terms without a line' end
wrong = wrong or same('line and terms', line, terms)
last = redis.call('ZRANGE', W, -1, -1, 'WITHSCORES')[2]
for _, one in ipairs({Q, W, D}) do
  if last and now + 1000 * redis.call('PTTL', one) < tonumber(last) then wrong = one .. ' ends before a waiter' end
end
return wrong or ''
";

/// What does not fit, if anything.
pub(crate) fn wrong(server: &mut RespClient, family: Family, now: i64) -> Option<String> {
    let base = format!("{{tenure:{NAME}}}:{}:", family.code());
    let found: Reply = server.call(&["EVAL", LOOK, "1", &base, &now.to_string()]).unwrap();
    let found = found.text();
    (!found.is_empty()).then_some(found)
}
