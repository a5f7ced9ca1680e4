
-- Changes the list of overrides of a limiter: all changes are made, or none.
--
-- The list is a hash. An override is a field of it: the field names whom the override is for, its effect and its
-- rules, and the value has the rest. The field begins with whom, which is a letter, the length of a text in
-- bytes, a colon, and the text. There are three more fields:
--
--   list    a random number that the list got when it was made
--   number  the version of the list: it grows by 1 with each change of one override
--   floor   a version: it is not known any more which overrides were lifted at this version or before
--
-- Three sorted sets belong to the list. Their members are the fields of overrides, and the scores are:
--
--   versions  the version at which the override was set
--   lifted    the version at which the override was lifted
--   ends      the microsecond at which the override ends; overrides without an end are not in this set
--
-- KEYS: the hash, versions, lifted, ends. ARGV: one argument for start.lua; the random number for a new list; how
-- many overrides a list may have; then four arguments for each change. These are 'set', a field, its value, and
-- when it ends or ''; or 'drop', a field, '', ''; or 'lift', whom, '', '', which drops all fields that begin with
-- whom. The script returns 1, or 0 if the list would be too long, so that it has changed nothing.

local list, versions, lifted, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now, most = s * 1e6 + us, ARGV[3] + 0
local count = call('ZCOUNT', versions, '-inf', '+inf')
local changes, order = {}, {} -- what each changed field is to become: false, or its value and its end

-- change notes what is to become of a field.
local function change(field, becomes)
  local known = changes[field]
  local was = known
  if known == nil then was = call('ZSCORE', versions, field) end
  if not was and not becomes then return end
  if not was then count = count + 1 elseif not becomes then count = count - 1 end
  if known == nil then order[#order + 1] = field end
  changes[field] = becomes
end

local function whom_of(field)
  local begins, size = match(field, '^(%a(%d+):)')
  return sub(field, 1, #begins + size)
end

-- fields_of returns the fields of whom. It reads the list when it is first called.
local by_whom
local function fields_of(whom)
  if not by_whom then
    by_whom = {}
    local fields = call('ZRANGEBYSCORE', versions, '-inf', '+inf')
    for _, field in ipairs(order) do fields[#fields + 1] = field end
    for _, field in ipairs(fields) do
      local some = by_whom[whom_of(field)] or {}
      some[#some + 1], by_whom[whom_of(field)] = field, some
    end
  end
  return by_whom[whom] or {}
end

for _, field in ipairs(call('ZRANGEBYSCORE', ends, '-inf', format('%.0f', now))) do change(field, false) end
for i = 4, #ARGV, 4 do
  local what, field = ARGV[i], ARGV[i + 1]
  if what == 'lift' then
    for _, one in ipairs(fields_of(field)) do change(one, false) end
  elseif what == 'drop' then
    change(field, false)
  else
    change(field, {ARGV[i + 2], ARGV[i + 3]})
    if by_whom then
      local some = fields_of(whom_of(field))
      some[#some + 1], by_whom[whom_of(field)] = field, some
    end
  end
end

if count > most then return 0 end
if #order == 0 then return 1 end

local number = (call('HGET', list, 'number') or 0) + 0
for _, field in ipairs(order) do
  local becomes = changes[field]
  number = number + 1
  if becomes then
    call('HSET', list, field, becomes[1])
    call('ZADD', versions, format('%.0f', number), field)
    call('ZREM', lifted, field)
    if becomes[2] ~= '' then call('ZADD', ends, becomes[2], field) else call('ZREM', ends, field) end
  else
    call('HDEL', list, field)
    call('ZREM', versions, field)
    call('ZREM', ends, field)
    call('ZADD', lifted, format('%.0f', number), field)
  end
end
call('HSET', list, 'list', call('HGET', list, 'list') or ARGV[2], 'number', format('%.0f', number))

local forgotten = call('ZCOUNT', lifted, '-inf', '+inf') - most
if forgotten > 0 then
  local floor = call('ZRANGEBYSCORE', lifted, '-inf', '+inf', 'WITHSCORES', 'LIMIT', forgotten - 1, 1)[2]
  call('ZREMRANGEBYSCORE', lifted, '-inf', floor)
  call('HSET', list, 'floor', floor)
end

-- If all overrides end, the keys expire a day after the last one has ended, so that processes that were idle still read
-- what was lifted.
local ms
if call('ZCOUNT', ends, '-inf', '+inf') == count then
  local last = call('ZREVRANGEBYSCORE', ends, '+inf', '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2] or now
  ms = format('%.0f', math.ceil((last - now) / 1000) + 86400000 + pad)
end
for _, key in ipairs(KEYS) do
  if ms then call('PEXPIRE', key, ms) else call('PERSIST', key) end
end
return 1
