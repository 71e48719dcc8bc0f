-- More than fits, of all sizes: 100 B to 10 MB evenly over the powers of ten, one in ten uncacheable, one
-- in ten without a lifetime. Arguments: a token and how many objects there are.
dofile(os.getenv("BENCH_LUA") .. "/report.lua")
function init(args)
  token, count = args[1], tonumber(args[2])
  math.randomseed(os.time())
end
function request()
  local n = math.random(count)
  -- An object has the same size every time it is asked for; large ones are rarer.
  local power = (n * 7919 % 1000) / 1000
  local size = math.floor(100 * 10 ^ (5 * power ^ 3))
  local kind = n % 10 == 0 and "private/" or n % 10 == 1 and "zero/" or "kept/"
  return wrk.format(nil, string.format("/%d/%s%s/%d", size, kind, token, n))
end
