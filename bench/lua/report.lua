-- Prints the results of wrk as one line of JSON, after a mark that cannot be part of wrk's own output.
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('\nBENCH {"requests": %d, "seconds": %.6f, "bytes": %d, "errors": %d, ' ..
    '"errors_by_kind": {"connect": %d, "read": %d, "write": %d, "status": %d, "timeout": %d}, "latency_us": {',
    summary.requests, summary.duration / 1e6, summary.bytes, e.connect + e.read + e.write + e.status + e.timeout,
    e.connect, e.read, e.write, e.status, e.timeout))
  for _, p in ipairs({ 50, 75, 90, 99, 99.9 }) do
    io.write(string.format('"p%g": %d, ', p, latency:percentile(p)))
  end
  io.write(string.format('"max": %d}}\n', latency.max))
end
