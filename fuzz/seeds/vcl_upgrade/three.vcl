# The shop.
backend web1 {
  .host = "127.0.0.1";
  .port = "8080";
  .probe = { .url = "/health"; .interval = 5s; .timeout = 1s; .window = 5; .threshold = 3; }
}
backend web2 { .host = "127.0.0.2"; }
director web random { { .backend = web1; .weight = 2; } { .backend = web2; .weight = 1; } }
acl purgers { "localhost"; "10.0.0.0"/8; }

sub vcl_recv {
  set req.backend = web;
  if (req.request == "PURGE") {
    if (!client.ip ~ purgers) { error 405 "Not allowed."; }
    return (lookup);
  }
  if (req.backend.healthy) { set req.grace = 30s; } else { set req.grace = 1h; }
  if (req.restarts == 0) {
    if (req.http.x-forwarded-for) {
      set req.http.X-Real = req.http.X-Forwarded-For ", " client.ip;
    }
  }
  if (req.url ~ "\.(png|gif|jpg|css|js)$") { remove req.http.Cookie; return (lookup); }
  if (req.http.Authorization || req.http.Cookie ~ "session") { return (pass); }
  if (req.url ~ "^/old") { error 750 "/new"; }
  return (lookup);
}
sub vcl_hash { hash_data(req.url); if (req.http.host) { hash_data(req.http.host); } else { hash_data(server.ip); } return (hash); }
sub vcl_hit { if (req.request == "PURGE") { purge; error 200 "Purged."; } return (deliver); }
sub vcl_miss { if (req.request == "PURGE") { purge; error 404 "Not in cache."; } return (fetch); }
sub vcl_fetch {
  if (beresp.status >= 500 && req.restarts < 2) { return (restart); }
  if (req.url ~ "\.(png|gif)$") { unset beresp.http.set-cookie; set beresp.ttl = 1d; }
  if (beresp.ttl <= 0s || beresp.http.Set-Cookie || beresp.http.Vary == "*") {
    set beresp.ttl = 120s;
    return (hit_for_pass);
  }
  set beresp.grace = 1h;
  return (deliver);
}
sub vcl_deliver {
  if (obj.hits > 0) { set resp.http.X-Cache = "HIT " obj.hits; } else { set resp.http.X-Cache = "MISS"; }
  return (deliver);
}
sub vcl_error {
  if (obj.status == 750) { set obj.http.Location = obj.response; set obj.status = 301; return (deliver); }
  set obj.http.Content-Type = "text/html; charset=utf-8";
  synthetic {"<html><h1>Error "} obj.status " " obj.response {"</h1>
<p>XID: "} req.xid {"</p></html>"};
  return (deliver);
}
