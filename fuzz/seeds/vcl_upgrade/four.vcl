vcl 4.0;
import std;
backend default { .host = "127.0.0.1"; }
sub vcl_hit {
    if (obj.ttl >= 0s) { return (deliver); }
    if (!std.healthy(req.backend_hint) && obj.ttl + obj.grace > 0s) { return (deliver); }
    return (fetch);
}
