sub devices_recv {
    unset req.http.X-Device;
    set req.http.X-Device = "pc";
    if (req.http.User-Agent ~ "\(compatible; Googlebot/2.1; \+http://www.google.com/bot.html\)"
        || (req.http.User-Agent ~ "(Android|iPhone)" && req.http.User-Agent ~ "(?i)bot")) {
        set req.http.X-Device = "mobile-bot";
    } elsif (req.http.User-Agent ~ "(?i)ip(hone|od)") {
        set req.http.X-Device = "mobile-iphone";
    } elsif (req.http.User-Agent ~ "(?i)android" && req.http.User-Agent !~ "(?i)(mobile|phone)") {
        set req.http.X-Device = "tablet-android";
    } else if (req.http.User-Agent ~ {"(?x) # a pattern over lines
        tablet | kindle | silk
    "}) {
        set req.http.X-Device = "tablet-generic";
    }
}
