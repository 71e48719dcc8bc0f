backend default { .host = "127.0.0.1"; .port = "80"; }
acl purge { "localhost"; }
sub vcl_recv {
  if (req.request == "PURGE") {
    if (!client.ip ~ purge) { error 405 "Not allowed."; }
    purge("req.url == " req.url " && req.http.host == " req.http.host);
    error 200 "Purged.";
  }
  if (req.request != "GET" && req.request != "HEAD") { pipe; }
  if (req.http.Cookie) { pass; }
  lookup;
}
sub vcl_hash { set req.hash += req.url; set req.hash += req.http.host; hash; }
sub vcl_hit { if (!obj.cacheable) { pass; } deliver; }
sub vcl_fetch {
  if (!obj.cacheable) { pass; }
  if (obj.http.Set-Cookie) { pass; }
  if (req.url ~ "\.html$") { esi; }
  set obj.prefetch = -30s;
  insert;
}
sub vcl_deliver { deliver; }
