-- One of N objects at random: arguments are the path before the number, and N.
dofile(os.getenv("BENCH_LUA") .. "/report.lua")
function init(args)
  prefix, count = args[1], tonumber(args[2])
  math.randomseed(1)
end
function request()
  return wrk.format(nil, prefix .. math.random(0, count - 1))
end
