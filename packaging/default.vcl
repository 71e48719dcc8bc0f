# The VCL program of the service lacquer. After a change:
#     lacquer check /etc/lacquer/default.vcl && systemctl reload lacquer
#
# Subroutines that you do not define have their built-in content: responses to GET and HEAD are cached as their
# Cache-Control and Expires headers allow, or for two minutes if they have neither. Requests with cookies are passed.
vcl 4.1;

# Your web server. Until it accepts connections here, visitors get an error page.
backend default {
    .host = "127.0.0.1";
    .port = "8080";
}

# Runs for each request, before the cache is searched. Uncomment what you need.
sub vcl_recv {
    # Cache pages although the browser sends cookies that only scripts read:
    # if (req.url !~ "^/(account|admin)") {
    #     unset req.http.Cookie;
    # }

    # Never cache these:
    # if (req.url ~ "^/admin") {
    #     return (pass);
    # }
}

# Runs for each response of the web server, before it enters the cache.
sub vcl_backend_response {
    # Serve a stale copy for an hour while the web server is down:
    # set beresp.grace = 1h;
}
