//! HPACK's static table (RFC 7541 appendix A). Each row is the line that its field decodes to, so decoding an indexed
//! field is a single copy.

/// A row: the line and the length of its name.
#[derive(Clone, Copy, Debug)]
pub struct StaticField {
    pub line: &'static [u8],
    pub name_len: usize,
}

macro_rules! rows {
    ($($name:literal $value:literal)*) => {
        pub(crate) const STATIC: [StaticField; COUNT] = [
            $(StaticField { line: concat!($name, ": ", $value).as_bytes(), name_len: $name.len() }),*
        ];
    };
}

/// The number of rows. Rows are numbered from 1; the numbers of the dynamic table follow.
pub(crate) const COUNT: usize = 61;

rows! {
    ":authority" ""
    ":method" "GET"
    ":method" "POST"
    ":path" "/"
    ":path" "/index.html"
    ":scheme" "http"
    ":scheme" "https"
    ":status" "200"
    ":status" "204"
    ":status" "206"
    ":status" "304"
    ":status" "400"
    ":status" "404"
    ":status" "500"
    "accept-charset" ""
    "accept-encoding" "gzip, deflate"
    "accept-language" ""
    "accept-ranges" ""
    "accept" ""
    "access-control-allow-origin" ""
    "age" ""
    "allow" ""
    "authorization" ""
    "cache-control" ""
    "content-disposition" ""
    "content-encoding" ""
    "content-language" ""
    "content-length" ""
    "content-location" ""
    "content-range" ""
    "content-type" ""
    "cookie" ""
    "date" ""
    "etag" ""
    "expect" ""
    "expires" ""
    "from" ""
    "host" ""
    "if-match" ""
    "if-modified-since" ""
    "if-none-match" ""
    "if-range" ""
    "if-unmodified-since" ""
    "last-modified" ""
    "link" ""
    "location" ""
    "max-forwards" ""
    "proxy-authenticate" ""
    "proxy-authorization" ""
    "range" ""
    "referer" ""
    "refresh" ""
    "retry-after" ""
    "server" ""
    "set-cookie" ""
    "strict-transport-security" ""
    "transfer-encoding" ""
    "user-agent" ""
    "vary" ""
    "via" ""
    "www-authenticate" ""
}
