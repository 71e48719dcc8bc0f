//! QPACK's static table (RFC 9204 appendix A). Each row is the line that its field decodes to.

use lacquer_h2::hpack::StaticField;

macro_rules! rows {
    ($($name:literal $value:literal)*) => {
        pub(super) static STATIC: [StaticField; COUNT] = [
            $(StaticField { line: concat!($name, ": ", $value).as_bytes(), name_len: $name.len() }),*
        ];
    };
}

/// The number of rows. Rows are numbered from 0.
pub(super) const COUNT: usize = 99;

rows! {
    ":authority" ""
    ":path" "/"
    "age" "0"
    "content-disposition" ""
    "content-length" "0"
    "cookie" ""
    "date" ""
    "etag" ""
    "if-modified-since" ""
    "if-none-match" ""
    "last-modified" ""
    "link" ""
    "location" ""
    "referer" ""
    "set-cookie" ""
    ":method" "CONNECT"
    ":method" "DELETE"
    ":method" "GET"
    ":method" "HEAD"
    ":method" "OPTIONS"
    ":method" "POST"
    ":method" "PUT"
    ":scheme" "http"
    ":scheme" "https"
    ":status" "103"
    ":status" "200"
    ":status" "304"
    ":status" "404"
    ":status" "503"
    "accept" "*/*"
    "accept" "application/dns-message"
    "accept-encoding" "gzip, deflate, br"
    "accept-ranges" "bytes"
    "access-control-allow-headers" "cache-control"
    "access-control-allow-headers" "content-type"
    "access-control-allow-origin" "*"
    "cache-control" "max-age=0"
    "cache-control" "max-age=2592000"
    "cache-control" "max-age=604800"
    "cache-control" "no-cache"
    "cache-control" "no-store"
    "cache-control" "public, max-age=31536000"
    "content-encoding" "br"
    "content-encoding" "gzip"
    "content-type" "application/dns-message"
    "content-type" "application/javascript"
    "content-type" "application/json"
    "content-type" "application/x-www-form-urlencoded"
    "content-type" "image/gif"
    "content-type" "image/jpeg"
    "content-type" "image/png"
    "content-type" "text/css"
    "content-type" "text/html; charset=utf-8"
    "content-type" "text/plain"
    "content-type" "text/plain;charset=utf-8"
    "range" "bytes=0-"
    "strict-transport-security" "max-age=31536000"
    "strict-transport-security" "max-age=31536000; includesubdomains"
    "strict-transport-security" "max-age=31536000; includesubdomains; preload"
    "vary" "accept-encoding"
    "vary" "origin"
    "x-content-type-options" "nosniff"
    "x-xss-protection" "1; mode=block"
    ":status" "100"
    ":status" "204"
    ":status" "206"
    ":status" "302"
    ":status" "400"
    ":status" "403"
    ":status" "421"
    ":status" "425"
    ":status" "500"
    "accept-language" ""
    "access-control-allow-credentials" "FALSE"
    "access-control-allow-credentials" "TRUE"
    "access-control-allow-headers" "*"
    "access-control-allow-methods" "get"
    "access-control-allow-methods" "get, post, options"
    "access-control-allow-methods" "options"
    "access-control-expose-headers" "content-length"
    "access-control-request-headers" "content-type"
    "access-control-request-method" "get"
    "access-control-request-method" "post"
    "alt-svc" "clear"
    "authorization" ""
    "content-security-policy" "script-src 'none'; object-src 'none'; base-uri 'none'"
    "early-data" "1"
    "expect-ct" ""
    "forwarded" ""
    "if-range" ""
    "origin" ""
    "purpose" "prefetch"
    "server" ""
    "timing-allow-origin" "*"
    "upgrade-insecure-requests" "1"
    "user-agent" ""
    "x-forwarded-for" ""
    "x-frame-options" "deny"
    "x-frame-options" "sameorigin"
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacquer_h2::hpack::is_well_formed;

    #[test]
    fn rows_have_the_numbers_of_the_rfc() {
        for (row, line) in [
            (0, ":authority: "),
            (15, ":method: CONNECT"),
            (25, ":status: 200"),
            (31, "accept-encoding: gzip, deflate, br"),
            (52, "content-type: text/html; charset=utf-8"),
            (63, ":status: 100"),
            (72, "accept-language: "),
            (98, "x-frame-options: sameorigin"),
        ] {
            assert_eq!(STATIC[row].line, line.as_bytes());
        }
    }

    #[test]
    fn rows_are_well_formed() {
        for row in &STATIC {
            assert!(is_well_formed(&row.line[..row.name_len], &row.line[row.name_len + 2..]));
        }
    }
}
