-- More objects than fit, of 100 B to 10 MB, evenly over the powers of ten. One in ten is uncacheable, one in ten
-- has no lifetime. Arguments: a token and the number of objects.
dofile(os.getenv("BENCH_LUA") .. "/report.lua")
function init(args)
  token, count = args[1], tonumber(args[2])
  math.randomseed(os.time())
end
function request()
  local n = math.random(count)
  -- An object has the same size each time it is requested; large objects are rarer.
  local power = (n * 7919 % 1000) / 1000
  local size = math.floor(100 * 10 ^ (5 * power ^ 3))
  local kind = n % 10 == 0 and "private/" or n % 10 == 1 and "zero/" or "kept/"
  return wrk.format(nil, string.format("/%d/%s%s/%d", size, kind, token, n))
end
