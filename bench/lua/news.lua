-- The pages of a news site on election night: one of 20,000 articles 60 %, news home 3 %, election home,
-- election news, trend and candidates 8 % each, politics 2 %, entertainment 3 %.
dofile(os.getenv("BENCH_LUA") .. "/report.lua")
local pages = {
  { 3, "/60000/news" }, { 8, "/80000/election" }, { 8, "/60000/election/news" }, { 8, "/40000/election/trend" },
  { 8, "/50000/election/candidates" }, { 2, "/60000/politics" }, { 3, "/60000/entertainment" },
}
function init(args)
  token = args[1]
  math.randomseed(1)
end
function request()
  local at = math.random(100)
  for _, page in ipairs(pages) do
    if at <= page[1] then return wrk.format(nil, page[2] .. "/" .. token) end
    at = at - page[1]
  end
  return wrk.format(nil, "/30000/article/" .. token .. "/" .. math.random(20000))
end
