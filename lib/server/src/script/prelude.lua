-- The environment that scripts see. Arguments: `seen` (converts an error for scripts), `spent` (tells why the script must stop, if it must),
-- `place` (tells the script's current line), the library `redis`, the scripts' environment, and `patterns` (functions for matching). Returns
-- two functions: one runs a script or a function, and one runs a library's text.
local seen, spent, place, redis, env, patterns = ...
local error, type, tostring, tonumber, rawnext, select = error, type, tostring, tonumber, next, select
local pcall0, xpcall0, loadstring0, setfenv0 = pcall, xpcall, loadstring, setfenv
local setmetatable0, getmetatable0, rawset0 = setmetatable, getmetatable, rawset
local rawget0, unpack0, byte = rawget, unpack, string.byte

-- A stopped script must not continue: each function that catches errors raises the reason for the stop again.
local function unless_spent(...)
  local why = spent()
  if why then error(why, 0) end
  return ...
end

-- Scripts must not change a sealed table. `__metatable` is what `getmetatable0` returns: here it holds the table that scripts read through
-- the sealed one. (No table of this file has tables as keys: the collector would visit them in the order of their addresses. A script could
-- then run out of memory at different times on different replicas.)
local function readonly() error("Attempt to modify a readonly table", 2) end
local function guard(t, index, through)
  return setmetatable0(t, { __index = index, __newindex = readonly, __metatable = { sealed = through } })
end
local function seal(t) return guard({}, t, t) end
-- Returns the table that scripts read through a sealed one. Returns `nil` if the value is not sealed.
local function sealed(value)
  local meta = getmetatable0(value)
  return meta and rawget0(meta, "sealed")
end

-- Addresses differ between replicas. A script must not see any address.
local function shown(value)
  local kind = type(value)
  if kind == "table" or kind == "function" or kind == "thread" then
    local meta = getmetatable0(value)
    if not meta or rawget0(meta, "own") == nil then return kind end
  end
  return tostring(value)
end

local function whole(err)
  err = seen(err)
  if type(err) ~= "table" then err = { err = "ERR " .. shown(err) } end
  local source, line = place()
  if source and not sealed(err) then err.source, err.line = source, line end
  return err
end

-- Patterns. Lua's own functions have no bound on their steps and no bound on their stack.
local search, plain, replace, is_plain = patterns.search, patterns.plain, patterns.replace, patterns.is_plain
local concat, sub = table.concat, string.sub

local function text(value, number, name, ...)
  local kind = type(value)
  if kind == "string" then return value end
  if kind == "number" then return tostring(value) end
  error("bad argument #" .. number .. " to '" .. name .. "' (string expected, got " .. kind .. ")", 3)
end

-- Converts an argument to a number from which C makes an `int`. Beyond the bounds of an `int` the result in C depends on the processor.
local function short(value, number, name, usual)
  if value == nil and usual then return usual end
  local given = tonumber(value)
  if not given then error("bad argument #" .. number .. " to '" .. name .. "' (number expected, got " .. type(value) .. ")", 3) end
  if not (given > -2147483649 and given < 2147483648) then
    error("bad argument #" .. number .. " to '" .. name .. "' (number out of range)", 3)
  end
  return given
end

local function is_table(value, name)
  if type(value) ~= "table" then error("bad argument #1 to '" .. name .. "' (table expected, got " .. type(value) .. ")", 3) end
end

local function found(ok, from, to, bare, ...)
  if not ok then error(from, 3) end
  if not from then return nil end
  if bare then return from, to end
  return from, to, ...
end
function string.find(s, p, init, whole_text)
  s, p = text(s, 1, "find"), text(p, 2, "find")
  if whole_text or is_plain(p) then return plain(s, p, init or 1) end
  return found(search(s, p, init or 1, true))
end

local function captured(ok, from, to, bare, ...)
  if not ok then error(from, 3) end
  if not from then return nil end
  return ...
end
function string.match(s, p, init)
  s, p = text(s, 1, "match"), text(p, 2, "match")
  return captured(search(s, p, init or 1, true))
end

function string.gmatch(s, p)
  s, p = text(s, 1, "gmatch"), text(p, 2, "gmatch")
  local at, last = 1, #s + 1
  local function next_one(ok, from, to, bare, ...)
    if not ok then error(from, 3) end
    if not from then
      at = last + 1
      return nil
    end
    at = to >= from and to + 1 or from + 1
    return ...
  end
  return function()
    if at > last then return nil end
    return next_one(search(s, p, at, false))
  end
end
string.gfind = string.gmatch

-- Returns the start and the end of the next match, and the replacement from a table or a function.
local function value_of(with, ok, from, to, bare, ...)
  if not ok then error(from, 3) end
  if not from then return nil end
  if type(with) == "table" then return from, to, with[(...)] end
  return from, to, (with(...))
end
function string.gsub(s, p, with, most)
  s, p = text(s, 1, "gsub"), text(p, 2, "gsub")
  local kind = type(with)
  if most == nil then most = #s + 1 end
  if not tonumber(most) then error("bad argument #4 to 'gsub' (number expected, got " .. type(most) .. ")", 2) end
  most = tonumber(most)
  if kind == "string" or kind == "number" then
    local ok, replaced, count = replace(s, p, tostring(with), most)
    if not ok then error(replaced, 2) end
    return replaced, count
  end
  if kind ~= "table" and kind ~= "function" then
    error("bad argument #3 to 'gsub' (string/function/table expected)", 2)
  end
  local anchored = sub(p, 1, 1) == "^"
  local parts, at, count = {}, 1, 0
  while count < most and at <= #s + 1 do
    local from, to, value = value_of(with, search(s, p, at, true))
    if not from then break end
    count = count + 1
    parts[#parts + 1] = sub(s, at, from - 1)
    local is = type(value)
    if not value then
      value = sub(s, from, to)
    elseif is ~= "string" and is ~= "number" then
      error("invalid replacement value (a " .. is .. ")", 2)
    end
    parts[#parts + 1] = value
    at = to + 1
    if to < from then
      parts[#parts + 1] = sub(s, at, at)
      at = at + 1
    end
    if anchored then break end
  end
  parts[#parts + 1] = sub(s, at)
  return concat(parts), count
end

local repeated = patterns.rep
function string.rep(s, n)
  s = text(s, 1, "rep")
  local count = tonumber(n)
  if not count then error("bad argument #2 to 'rep' (number expected, got " .. type(n) .. ")", 2) end
  return repeated(s, count)
end

-- The functions in C count as one instruction each, however long they take. One that makes this many steps passes a point.
local LONG = 65536
local point = patterns.point

local function lengthy(result)
  if #result > LONG then point() end
  return result
end
local upper, lower, reverse = string.upper, string.lower, string.reverse
function string.upper(s) return lengthy(upper(text(s, 1, "upper"))) end
function string.lower(s) return lengthy(lower(text(s, 1, "lower"))) end
function string.reverse(s) return lengthy(reverse(text(s, 1, "reverse"))) end

-- Returns the result of a function in C, or raises its error at the line where the script called. (`pcall` does not know the function's name.)
local function made(name, ok, result)
  if ok then return lengthy(result) end
  point()
  if type(result) == "string" then
    local _, told = replace(result, "to '%?'", "to '" .. name .. "'", 1)
    result = told
  end
  error(result, 3)
end
local format = string.format
function string.format(...) return made("format", pcall0(format, ...)) end
function table.concat(...) return made("concat", pcall0(concat, ...)) end

local insert, remove, max = table.insert, table.remove, math.max
function table.insert(t, ...)
  is_table(t, "insert")
  if sealed(t) then error("Attempt to modify a readonly table", 2) end
  local count = select("#", ...)
  if count == 1 then return insert(t, (...)) end
  if count ~= 2 then error("wrong number of arguments to 'insert'", 2) end
  local to, value = ...
  to = short(to, 2, "insert")
  -- Lua moves each place from `to` to the end, also the places before the first.
  if to < -LONG then error("bad argument #2 to 'insert' (position out of bounds)", 2) end
  if #t - to > LONG then point() end
  return insert(t, to, value)
end
function table.remove(t, from)
  is_table(t, "remove")
  local last = #t
  from = short(from, 2, "remove", last)
  if last - from > LONG then point() end
  return remove(t, from)
end
-- As many instructions whatever the order of the keys.
function table.maxn(t)
  is_table(t, "maxn")
  local most = 0
  for key in rawnext, t do most = type(key) == "number" and max(most, key) or most end
  return most
end
function table.foreachi(t, f)
  is_table(t, "foreachi")
  for at = 1, #t do
    local result = f(at, rawget0(t, at))
    if result ~= nil then return result end
  end
end

-- Sorting is a single instruction, although it makes many comparisons that may each take long. These comparisons count their instructions.
local sort = table.sort
local function less(a, b) return a < b end
function table.sort(t, order)
  if type(t) ~= "table" then error("bad argument #1 to 'sort' (table expected, got " .. type(t) .. ")", 2) end
  local kind, by = type(order), order
  if kind == "nil" then
    by = less
  elseif kind == "function" then
    by = function(a, b) return order(a, b) end
  end
  return sort(t, by)
end

local shared = {}
for _, name in ipairs { "assert", "error", "ipairs", "rawequal", "select", "tonumber", "type", "_VERSION" } do
  shared[name] = _G[name]
end
-- Libraries are sealed, because otherwise the next script would find what a script has changed in a library. The functions that access a
-- database are set in `redis` itself.
for _, name in ipairs { "string", "table", "math", "cjson", "cmsgpack", "struct", "bit" } do
  shared[name] = seal(_G[name])
end
shared.redis, shared._G = seal(redis), env
string.dump = nil

function shared.rawget(t, key)
  is_table(t, "rawget")
  return rawget0(sealed(t) or t, key)
end
function shared.rawset(t, ...)
  if sealed(t) then error("Attempt to modify a readonly table", 2) end
  return rawset0(t, ...)
end

-- Weak tables show when the collector runs, and so what earlier scripts have left in the state. A script's metatables are therefore copied
-- without `__mode`. A copy has the fields that the script's table has when `setmetatable` is called. `getmetatable` returns `own`, a field of
-- the copy: the script's own table, or if that table has a field `__metatable`, the value of this field.
local EVENTS = { "__index", "__newindex", "__call", "__metatable", "__tostring", "__eq", "__lt", "__le", "__concat", "__add", "__sub",
  "__mul", "__div", "__mod", "__pow", "__unm" }
function shared.setmetatable(t, meta)
  if sealed(t) then error("Attempt to modify a readonly table", 2) end
  is_table(t, "setmetatable")
  if meta == nil then return setmetatable0(t, nil) end
  if type(meta) ~= "table" then error("bad argument #2 to 'setmetatable' (nil or table expected)", 2) end
  local copy = { own = meta }
  for at = 1, #EVENTS do
    local event = EVENTS[at]
    copy[event] = rawget0(meta, event)
  end
  -- Lua's own `tostring` would show the address.
  copy.__tostring = copy.__tostring or type
  if copy.__metatable ~= nil then copy.__metatable = { own = copy.__metatable } end
  return setmetatable0(t, copy)
end
function shared.getmetatable(value)
  local meta = getmetatable0(value)
  return meta and rawget0(meta, "own")
end
-- Converts the results of `pcall`. As in Redis, an error that is a table is replaced by its text.
local function caught(ok, ...)
  if ok then return ok, ... end
  local what = seen((...))
  local text = type(what) == "table" and rawget0(what, "err")
  return ok, type(text) == "string" and text or what
end
function shared.pcall(...) return unless_spent(caught(pcall0(...))) end
-- A lack of memory is noted here, because error handlers are not called for it.
local function told(ok, what, ...)
  if not ok then seen(what) end
  return ok, what, ...
end
function shared.xpcall(f, handler)
  -- No handler of a stopped script is called, because the handler could run for long.
  return unless_spent(told(xpcall0(f, function(err)
    err = seen(err)
    return spent() or handler(err)
  end)))
end

shared.tostring = shown

-- Keys that are tables or functions are in the order of their addresses, which differs between replicas. All keys are counted, so that each
-- replica runs as many instructions.
local UNORDERED = { table = 1, ["function"] = 1 }
local function checked(t)
  local count = 0
  for key in rawnext, t do count = count + (UNORDERED[type(key)] or 0) end
  if count > 0 then error("the keys of this table have no order: one is a table or a function", 3) end
end
function shared.next(t, key)
  if type(t) == "table" then checked(t) end
  return rawnext(sealed(t) or t, key)
end
function shared.pairs(t)
  if sealed(t) then return shared.next, t, nil end
  if type(t) == "table" then checked(t) end
  return rawnext, t, nil
end
function table.foreach(t, f)
  for key, value in shared.pairs(t) do
    local result = f(key, value)
    if result ~= nil then return result end
  end
end

-- Lua's own `unpack` counts the values in an `int`. If the count overflows, the values are written outside the stack (CVE-2025-46817). The
-- stack of a function in C has 8000 places, also for its arguments.
function shared.unpack(t, first, last)
  is_table(t, "unpack")
  if first == nil and last == nil then
    if #t > 7999 then error("too many results to unpack", 2) end
    return unpack0(t)
  end
  first, last = short(first, 2, "unpack", 1), short(last, 3, "unpack", #t)
  if last - first > 7996 then error("too many results to unpack", 2) end
  return unpack0(t, first, last)
end

-- Lua does not check compiled code, so that such code can read and write any memory. `byte` is a local variable, because a script's `string`
-- must not decide what a text is.
--
-- Lua's parser does not hold the name of a text (CVE-2025-49844). Here it is a string that this call holds: Lua makes the same string of
-- the same bytes, and the name has no zero byte at which Lua would cut it.
function shared.loadstring(code, name)
  if type(code) ~= "string" or byte(code, 1) == 27 then return nil, "only text is loaded" end
  point()
  name = name == nil and code or text(name, 2, "loadstring")
  local zero = plain(name, "\0", 1)
  if zero then name = sub(name, 1, zero - 1) end
  local made, what = loadstring0(code, name)
  if not made then seen(what) end
  return made and setfenv0(made, env), what
end

-- Returns the global `name`, which must exist. The callers use no tail call, so that level 3 is the script's line.
local function found_in(t, name)
  local value = t[name]
  if value == nil then error("Script attempted to access nonexistent global variable '" .. shown(name) .. "'", 3) end
  return value
end
local globals = shared
guard(env, function(_, name) return (found_in(globals, name)) end, env)
getmetatable0("").__metatable = false

-- A script gets its keys and arguments as globals, and a function gets them as parameters.
local function run(body, keys, args, is_function)
  globals = shared
  if is_function then
    shared.KEYS, shared.ARGV = nil, nil
    return xpcall0(function() return body(keys, args) end, whole)
  end
  shared.KEYS, shared.ARGV = keys, args
  return xpcall0(body, whole)
end

-- While a library's text runs, the only global is `redis` with the contents of `api`.
local function load(text, api)
  globals = { redis = guard({}, function(_, name) return (found_in(api, name)) end) }
  local ok, what = xpcall0(text, whole)
  globals = shared
  return ok, what
end

return run, load
