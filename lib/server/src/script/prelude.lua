-- The environment that scripts see. Arguments: `seen` (converts an error for scripts), `spent` (tells why the script must stop, if it must),
-- `place` (tells the script's current line), the library `redis`, the scripts' environment, and `patterns` (functions for matching). Returns
-- three functions: one runs a script or a function, one runs a library's text, and one tells whether a script has left nothing behind.
local seen, spent, place, redis, env, patterns = ...
local error, type, tostring, tonumber, rawnext, select = error, type, tostring, tonumber, next, select
local pcall0, xpcall0, loadstring0, setfenv0 = pcall, xpcall, loadstring, setfenv
local setmetatable0, getmetatable0, rawset0 = setmetatable, getmetatable, rawset

-- A stopped script must not continue: each function that catches errors raises the reason for the stop again.
local function unless_spent(...)
  local why = spent()
  if why then error(why, 0) end
  return ...
end

local function whole(err)
  err = seen(err)
  if type(err) ~= "table" then err = { err = "ERR " .. tostring(err) } end
  local source, line = place()
  if source then err.source, err.line = source, line end
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
  most = most or #s + 1
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
for _, name in ipairs { "assert", "error", "getmetatable", "ipairs", "rawequal", "rawget", "select", "tonumber", "type", "unpack",
  "_VERSION", "string", "table", "math", "cjson", "cmsgpack", "struct", "bit" } do
  shared[name] = _G[name]
end
shared.redis, shared._G = redis, env
string.dump = nil

function shared.rawset(t, ...)
  if t == env then error("Attempt to modify a readonly table", 2) end
  return rawset0(t, ...)
end
function shared.setmetatable(t, ...)
  if t == env then error("Attempt to modify a readonly table", 2) end
  return setmetatable0(t, ...)
end
-- Converts the results of `pcall`. As in Redis, an error that is a table is replaced by its text.
local rawget = rawget
local function caught(ok, what, ...)
  if ok then return ok, what, ... end
  what = seen(what)
  local text = type(what) == "table" and rawget(what, "err")
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

-- Addresses differ between replicas. A script must not see any address.
function shared.tostring(value)
  local kind = type(value)
  if kind == "table" or kind == "function" or kind == "thread" then
    local meta = getmetatable0(value)
    if type(meta) ~= "table" or not meta.__tostring then return kind end
  end
  return tostring(value)
end

-- Keys that are tables or functions are in the order of their addresses, which differs between replicas.
local function checked(t)
  for key in rawnext, t do
    local kind = type(key)
    if kind == "table" or kind == "function" then error("the keys of this table have no order: one is a " .. kind, 3) end
  end
end
function shared.next(t, key)
  if type(t) == "table" then checked(t) end
  return rawnext(t, key)
end
function shared.pairs(t)
  if type(t) == "table" then checked(t) end
  return rawnext, t, nil
end
function table.foreach(t, f)
  for key, value in shared.pairs(t) do
    local result = f(key, value)
    if result ~= nil then return result end
  end
end

function shared.loadstring(text, name)
  if type(text) ~= "string" or text:byte(1) == 27 then return nil, "only text is loaded" end
  local made, what = loadstring0(text, name)
  if not made then seen(what) end
  return made and setfenv0(made, env), what
end

-- Returns the global `name`, which must exist. The callers use no tail call, so that level 3 is the script's line.
local function found_in(t, name)
  local value = t[name]
  if value == nil then error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 3) end
  return value
end
local function readonly() error("Attempt to modify a readonly table", 2) end
local function guard(t, index)
  return setmetatable0(t, { __index = index, __newindex = readonly, __metatable = false })
end
local globals = shared
guard(env, function(_, name) return (found_in(globals, name)) end)
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

-- The original contents of the tables to which scripts can write. The functions in `fresh` access a database and differ for each script.
local fresh = { call = true, pcall = true, setresp = true, acl_check_cmd = true }
local libraries = {}
for _, name in ipairs { "string", "table", "math", "cjson", "cmsgpack", "struct", "bit", "redis" } do
  local copy, count = {}, 0
  for key, value in rawnext, shared[name] do copy[key], count = value, count + 1 end
  libraries[#libraries + 1] = { shared[name], copy, count }
end
local function intact()
  shared.KEYS, shared.ARGV = nil, nil
  for index = 1, #libraries do
    local library, copy, count = libraries[index][1], libraries[index][2], libraries[index][3]
    if getmetatable0(library) ~= nil then return false end
    for key, value in rawnext, library do
      if copy[key] == value then
        count = count - 1
      elseif not (library == redis and fresh[key]) then
        return false
      end
    end
    if count ~= 0 then return false end
  end
  return rawnext(env) == nil
end

return run, load, intact
