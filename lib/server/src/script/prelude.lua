-- What scripts see of Lua. Gets: `raw` (carries a command out), `spent` (says whether the script was stopped), `place` (where the
-- script is), the library `redis`, and the environment that scripts get.
local raw, spent, place, redis, env = ...
local error, type, tostring, rawnext, select = error, type, tostring, next, select
local pcall0, xpcall0, loadstring0, setfenv0 = pcall, xpcall, loadstring, setfenv
local setmetatable0, getmetatable0, rawset0 = setmetatable, getmetatable, rawset

-- A script that was stopped cannot go on: what catches errors raises this one again.
local function unless_spent(...)
  if spent() then error("Script stopped: it ran more instructions than a script may", 0) end
  return ...
end

local function whole(err)
  if type(err) ~= "table" then err = { err = "ERR " .. tostring(err) } end
  local source, line = place()
  if source then err.source, err.line = source, line end
  return err
end

function redis.call(...)
  local ok, value = raw(...)
  if ok then return value end
  error(value, 0)
end

function redis.pcall(...)
  local _, value = raw(...)
  return value
end

local shared = {}
for _, name in ipairs { "assert", "error", "getmetatable", "ipairs", "rawequal", "rawget", "select", "tonumber", "type", "unpack",
  "_VERSION", "string", "table", "math", "cjson", "bit", "KEYS", "ARGV" } do
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
function shared.pcall(...) return unless_spent(pcall0(...)) end
function shared.xpcall(...) return unless_spent(xpcall0(...)) end

-- Addresses differ between replicas: no script sees one.
function shared.tostring(value)
  local kind = type(value)
  if kind == "table" or kind == "function" or kind == "thread" then
    local meta = getmetatable0(value)
    if type(meta) ~= "table" or not meta.__tostring then return kind end
  end
  return tostring(value)
end

-- The order of keys that are tables or functions is the order of addresses.
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
  return made and setfenv0(made, env), what
end

setmetatable0(env, {
  __index = function(_, name)
    local value = shared[name]
    if value == nil then error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2) end
    return value
  end,
  __newindex = function() error("Attempt to modify a readonly table", 2) end,
  __metatable = false,
})
getmetatable0("").__metatable = false

return function(script) return xpcall0(script, whole) end
