acl office { "192.0.2.0"/24; }

sub vcl_synth {
    set resp.http.Content-Type = "text/plain";
    set resp.body = "status " + resp.status;
    return (deliver);
}
