vcl 4.1;
import std;
import directors;
probe p { .url = "/"; .interval = 5s; .threshold = 3; }
backend a { .host = "127.0.0.1"; .port = "8080"; .probe = p; .first_byte_timeout = 1.5m; }
backend b none;
acl inside { "10.0.0.0"/8; ! "10.1.0.0"/16; "::1"; }
sub vcl_init { new d = directors.round_robin(); d.add_backend(a); d.add_backend(b); }
sub helper { set req.http.x-n = 1 + 2 * 3; }
sub vcl_recv {
	set req.backend_hint = d.backend();
	if (client.ip ~ inside && req.url !~ "^/(a|b)\.(png|jpg)$") {
		call helper;
		set req.http.x = regsuball(req.url, "a(b)", {"\1"}) + std.tolower("A") + now;
	} elsif (req.method == "PURGE") { return (purge); } else { unset req.http.cookie; }
	ban("obj.http.x == " + req.http.x);
	return (hash);
}
sub vcl_backend_response { set beresp.ttl = 1h; set beresp.grace = std.duration("10s", 1s); if (beresp.status >= 500) { return (retry); } }
sub vcl_deliver { set resp.http.hits = obj.hits; return (synth(404, "no")); }
