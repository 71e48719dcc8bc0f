//! Texts that are equal in every transaction: protocols, status codes with their reasons and some whole header lines.
//! A [`Text`] of this table is valid in all workspaces and needs neither a copy nor workspace, so it can be set even
//! after a workspace has overflowed.

use crate::text::Text;

macro_rules! fixed_texts {
    (statuses { $($code:literal $digits:literal = $reason:literal;)* }
     texts { $($constant:ident = $text:literal;)* }) => {
        const POOL: &str = concat!($($digits, $reason,)* $($text,)*);

        /// Status codes with their digits and reason, ascending.
        const STATUSES: &[(u16, Text, Text)] = &[$(($code, locate($digits), locate($reason))),*];

        /// The texts by name.
        pub mod fixed {
            use super::{locate, Text};
            $(pub const $constant: Text = locate($text);)*
        }
    };
}

fixed_texts! {
    statuses {
        100 "100" = "Continue";
        101 "101" = "Switching Protocols";
        102 "102" = "Processing";
        103 "103" = "Early Hints";
        200 "200" = "OK";
        201 "201" = "Created";
        202 "202" = "Accepted";
        203 "203" = "Non-Authoritative Information";
        204 "204" = "No Content";
        205 "205" = "Reset Content";
        206 "206" = "Partial Content";
        207 "207" = "Multi-Status";
        208 "208" = "Already Reported";
        226 "226" = "IM Used";
        300 "300" = "Multiple Choices";
        301 "301" = "Moved Permanently";
        302 "302" = "Found";
        303 "303" = "See Other";
        304 "304" = "Not Modified";
        305 "305" = "Use Proxy";
        306 "306" = "(Unused)";
        307 "307" = "Temporary Redirect";
        308 "308" = "Permanent Redirect";
        400 "400" = "Bad Request";
        401 "401" = "Unauthorized";
        402 "402" = "Payment Required";
        403 "403" = "Forbidden";
        404 "404" = "Not Found";
        405 "405" = "Method Not Allowed";
        406 "406" = "Not Acceptable";
        407 "407" = "Proxy Authentication Required";
        408 "408" = "Request Timeout";
        409 "409" = "Conflict";
        410 "410" = "Gone";
        411 "411" = "Length Required";
        412 "412" = "Precondition Failed";
        413 "413" = "Request Entity Too Large";
        414 "414" = "Request-URI Too Long";
        415 "415" = "Unsupported Media Type";
        416 "416" = "Requested Range Not Satisfiable";
        417 "417" = "Expectation Failed";
        421 "421" = "Misdirected Request";
        422 "422" = "Unprocessable Entity";
        423 "423" = "Locked";
        424 "424" = "Failed Dependency";
        425 "425" = "Too Early";
        426 "426" = "Upgrade Required";
        428 "428" = "Precondition Required";
        429 "429" = "Too Many Requests";
        431 "431" = "Request Header Fields Too Large";
        451 "451" = "Unavailable For Legal Reasons";
        500 "500" = "Internal Server Error";
        501 "501" = "Not Implemented";
        502 "502" = "Bad Gateway";
        503 "503" = "Service Unavailable";
        504 "504" = "Gateway Timeout";
        505 "505" = "HTTP Version Not Supported";
        506 "506" = "Variant Also Negotiates";
        507 "507" = "Insufficient Storage";
        508 "508" = "Loop Detected";
        510 "510" = "Not Extended";
        511 "511" = "Network Authentication Required";
    }
    texts {
        HTTP_10 = "HTTP/1.0";
        HTTP_11 = "HTTP/1.1";
        HTTP_20 = "HTTP/2.0";
        HTTP_30 = "HTTP/3.0";
        GET = "GET";
        HEAD = "HEAD";
        POST = "POST";
        SLASH = "/";
        FETCH_FAILED = "Backend fetch failed";
        UNKNOWN_STATUS = "Unknown HTTP Status";
        ACCEPT_RANGES_BYTES = "Accept-Ranges: bytes";
        ACCEPT_ENCODING_GZIP = "Accept-Encoding: gzip";
        CONNECTION_CLOSE = "Connection: close";
        CONNECTION_KEEP_ALIVE = "Connection: keep-alive";
        CONTENT_ENCODING_GZIP = "Content-Encoding: gzip";
        CONTENT_LENGTH_0 = "Content-Length: 0";
        TRANSFER_ENCODING_CHUNKED = "Transfer-Encoding: chunked";
        VARY_ACCEPT_ENCODING = "Vary: Accept-Encoding";
        SERVER_VARNISH = "Server: Varnish";
    }
}

/// The start line of most responses: protocol, status and reason.
pub(crate) const OK_START: [Text; 3] = [fixed::HTTP_11, locate("200"), locate("OK")];

/// Returns the position of `text` in the pool. Runs at compile time.
const fn locate(text: &str) -> Text {
    let (pool, needle) = (POOL.as_bytes(), text.as_bytes());
    let mut at = 0;
    while at + needle.len() <= pool.len() {
        let mut n = 0;
        while n < needle.len() && pool[at + n] == needle[n] {
            n += 1;
        }
        if n == needle.len() {
            return Text::fixed(at, needle.len());
        }
        at += 1;
    }
    panic!("text is not in the pool")
}

static POOL_BYTES: &[u8] = POOL.as_bytes();

/// Returns the bytes of a fixed text; empty for [`Text::NONE`].
#[inline]
pub(crate) fn bytes(text: Text) -> &'static [u8] {
    if text.is_none() {
        return b"";
    }
    let at = text.fixed_offset();
    &POOL_BYTES[at..at + text.len()]
}

fn find(status: u16) -> Option<&'static (u16, Text, Text)> {
    static BY_CODE: [u8; 512] = {
        let mut table = [0u8; 512];
        let mut n = 0;
        while n < STATUSES.len() {
            table[STATUSES[n].0 as usize] = n as u8 + 1;
            n += 1;
        }
        table
    };
    let n = *BY_CODE.get((status % 1000) as usize)?;
    (n > 0).then(|| &STATUSES[n as usize - 1])
}

/// Returns the standard reason phrase. For statuses above 999, which VCL may use for its own purposes, the last three
/// digits count.
pub fn reason_of(status: u16) -> &'static str {
    std::str::from_utf8(bytes(reason_text(status))).expect("the pool is ASCII")
}

/// Returns [`reason_of`] as a text.
pub fn reason_text(status: u16) -> Text {
    find(status).map_or(fixed::UNKNOWN_STATUS, |row| row.2)
}

/// Returns the three digits and the reason of a known status.
#[inline]
pub(crate) fn known_status(status: u16) -> Option<(Text, Text)> {
    find(status).map(|row| (row.1, row.2))
}

/// Returns the three digits of a known status.
pub(crate) fn status_text(status: u16) -> Option<Text> {
    find(status).map(|row| row.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_their_standard_reasons() {
        assert_eq!(reason_of(200), "OK");
        assert_eq!(reason_of(1404), "Not Found");
        assert_eq!(reason_of(511), "Network Authentication Required");
        assert_eq!(reason_of(599), "Unknown HTTP Status");
        assert_eq!(reason_of(999), "Unknown HTTP Status");
        assert_eq!(bytes(status_text(416).unwrap()), b"416");
        assert_eq!(bytes(fixed::VARY_ACCEPT_ENCODING), b"Vary: Accept-Encoding");
        assert!(STATUSES.is_sorted_by_key(|row| row.0));
    }
}
