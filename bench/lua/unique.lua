-- Each request is for a new object: /SIZE/TOKEN/thread/n. The token differs from run to run.
dofile(os.getenv("BENCH_LUA") .. "/report.lua")
local threads = 0
function setup(thread)
  threads = threads + 1
  thread:set("id", threads)
end
local n = 0
function init(args)
  prefix = args[1] .. "/" .. id .. "/"
end
function request()
  n = n + 1
  return wrk.format(nil, prefix .. n)
end
