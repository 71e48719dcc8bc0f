//! The headers in Varnish's table, the filters that drop each of them, and the perfect hash that finds them. A known
//! name is one byte in a header slot, so filters and lookups compare no strings.

use std::fmt;

/// A set of headers that are dropped when a message is copied: one bit for the number of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter(u64);

impl Filter {
    /// Drops only the headers that `Connection` names.
    pub const NOTHING: Filter = Filter(0);
    /// Into HTTP/2, which has no connection-specific headers.
    pub const HTTP2: Filter = Filter::of(HOP);
    /// From the client's request to a backend request for a pass.
    pub const PASS: Filter = Filter::of(PASS);
    /// From the client's request to a backend request for a cache fetch.
    pub const FETCH: Filter = Filter::of(FETCH);
    /// From a backend response into a cached object.
    pub const INSERT: Filter = Filter::of(INSERT);
    /// Like `INSERT`, but keeps `Content-Range`, which has no meaning with statuses other than 206 and 416. RFC 9111
    /// section 3.1 allows no exception for it.
    pub const INSERT_WITH_RANGE: Filter = Filter(Filter::INSERT.0 & !bit(CONTENT_RANGE.id));
    /// From a backend response into an uncacheable object.
    pub const PASS_OBJECT: Filter = Filter::of(PASS_OBJECT);

    const fn of(flag: u8) -> Filter {
        let mut bits = 0;
        let mut id = 0;
        while id < KNOWN.len() {
            if KNOWN[id].flags & flag != 0 {
                bits |= bit(id as u8);
            }
            id += 1;
        }
        Filter(bits)
    }

    /// Returns whether the header with this number is dropped.
    #[inline]
    pub(crate) const fn has(self, id: u8) -> bool {
        self.0 & bit(id) != 0
    }
}

/// Returns the bit of a header's number.
#[inline]
pub(crate) const fn bit(id: u8) -> u64 {
    1 << (id % 64)
}

const _: () = assert!(KNOWN.len() <= 64, "each number has a bit of its own");

const PASS: u8 = 1;
const FETCH: u8 = 2;
const INSERT: u8 = 4;
const PASS_OBJECT: u8 = 8;
/// Connection-specific: forbidden in HTTP/2.
const HOP: u8 = 16;

/// A header name for a search. Known names are compared as numbers.
#[derive(Clone, Copy, Debug)]
pub struct HeaderName<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) id: u8,
}

impl<'a> HeaderName<'a> {
    /// Classifies a name. `bytes` does not include the colon.
    pub const fn new(bytes: &'a [u8]) -> HeaderName<'a> {
        HeaderName { bytes, id: classify(bytes) }
    }

    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) const fn is_known(&self) -> bool {
        self.id != UNKNOWN
    }

    /// Returns whether `filter` drops the header.
    pub const fn is_filtered(&self, filter: Filter) -> bool {
        filter.has(self.id)
    }

    pub fn matches(&self, other: &[u8]) -> bool {
        self.bytes.eq_ignore_ascii_case(other)
    }
}

/// An owned header name, for frequent searches. It is classified once.
#[derive(Clone, Debug)]
pub struct OwnedName {
    text: Box<str>,
    id: u8,
}

impl OwnedName {
    /// Classifies a name. `text` does not include the colon.
    pub fn new(text: &str) -> OwnedName {
        OwnedName { text: text.into(), id: classify(text.as_bytes()) }
    }

    #[inline]
    pub fn borrow(&self) -> HeaderName<'_> {
        HeaderName { bytes: self.text.as_bytes(), id: self.id }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl fmt::Display for OwnedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

pub(crate) const UNKNOWN: u8 = 0;

struct Known {
    name: &'static str,
    flags: u8,
}

macro_rules! headers {
    ($($constant:ident = $name:literal $flags:expr;)*) => {
        const KNOWN: &[Known] = &[Known { name: "", flags: 0 }, $(Known { name: $name, flags: $flags }),*];
        $(pub const $constant: HeaderName<'static> = HeaderName::new($name.as_bytes());)*
    };
}

headers! {
    ACCEPT = "Accept" 0;
    ACCEPT_CHARSET = "Accept-Charset" 0;
    ACCEPT_ENCODING = "Accept-Encoding" 0;
    ACCEPT_LANGUAGE = "Accept-Language" 0;
    ACCEPT_RANGES = "Accept-Ranges" PASS | FETCH | INSERT;
    AGE = "Age" INSERT | PASS_OBJECT;
    ALLOW = "Allow" 0;
    AUTHORIZATION = "Authorization" 0;
    CACHE_CONTROL = "Cache-Control" FETCH;
    CONNECTION = "Connection" PASS | FETCH | INSERT | PASS_OBJECT | HOP;
    CONTENT_ENCODING = "Content-Encoding" 0;
    CONTENT_LANGUAGE = "Content-Language" 0;
    CONTENT_LENGTH = "Content-Length" 0;
    CONTENT_LOCATION = "Content-Location" 0;
    CONTENT_MD5 = "Content-MD5" 0;
    CONTENT_RANGE = "Content-Range" FETCH | INSERT;
    CONTENT_TYPE = "Content-Type" 0;
    COOKIE = "Cookie" 0;
    DATE = "Date" 0;
    ETAG = "ETag" 0;
    EXPECT = "Expect" 0;
    EXPIRES = "Expires" 0;
    FROM = "From" 0;
    HOST = "Host" 0;
    HTTP2_SETTINGS = "HTTP2-Settings" PASS | FETCH | INSERT | PASS_OBJECT | HOP;
    IF_MATCH = "If-Match" FETCH;
    IF_MODIFIED_SINCE = "If-Modified-Since" FETCH;
    IF_NONE_MATCH = "If-None-Match" FETCH;
    IF_RANGE = "If-Range" FETCH;
    IF_UNMODIFIED_SINCE = "If-Unmodified-Since" FETCH;
    KEEP_ALIVE = "Keep-Alive" PASS | FETCH | INSERT | PASS_OBJECT | HOP;
    LAST_MODIFIED = "Last-Modified" 0;
    LOCATION = "Location" 0;
    MAX_FORWARDS = "Max-Forwards" 0;
    PRAGMA = "Pragma" 0;
    PROXY_AUTHENTICATE = "Proxy-Authenticate" FETCH | INSERT;
    PROXY_AUTHORIZATION = "Proxy-Authorization" FETCH | INSERT;
    RANGE = "Range" FETCH | INSERT;
    REFERER = "Referer" 0;
    RETRY_AFTER = "Retry-After" 0;
    SERVER = "Server" 0;
    SET_COOKIE = "Set-Cookie" 0;
    TE = "TE" PASS | FETCH | INSERT | PASS_OBJECT;
    TRAILER = "Trailer" PASS | FETCH | INSERT | PASS_OBJECT;
    TRANSFER_ENCODING = "Transfer-Encoding" PASS | FETCH | INSERT | PASS_OBJECT | HOP;
    UPGRADE = "Upgrade" PASS | FETCH | INSERT | PASS_OBJECT | HOP;
    USER_AGENT = "User-Agent" 0;
    VARY = "Vary" 0;
    VIA = "Via" 0;
    WARNING = "Warning" 0;
    WWW_AUTHENTICATE = "WWW-Authenticate" 0;
    X_FORWARDED_FOR = "X-Forwarded-For" 0;
    // Names that are added later come last, so that the numbers in stored heads keep their meaning.
    CACHE_STATUS = "Cache-Status" 0;
    X_LACQUER_WHY = "X-Lacquer-Why" PASS | FETCH | INSERT | PASS_OBJECT;
    PROXY_CONNECTION = "Proxy-Connection" HOP;
}

/// Returns a hash that is different for all known names. Case is ignored.
const fn hash(name: &[u8]) -> u8 {
    match name {
        [first, .., last] => {
            let (first, last) = ((*first | CASE as u8) as usize, (*last | CASE as u8) as usize);
            (name.len() + first * 16 + last * 8) as u8
        }
        _ => 0,
    }
}

/// Built at compile time. A collision fails the build; then other factors have to be found.
static TABLE: [u8; 256] = {
    let mut table = [UNKNOWN; 256];
    let mut id = 1;
    while id < KNOWN.len() {
        let slot = hash(KNOWN[id].name.as_bytes()) as usize;
        assert!(table[slot] == UNKNOWN, "collision in the header table");
        table[slot] = id as u8;
        id += 1;
    }
    table
};

/// The known names in lower case, in the form in which other names are compared with them.
static KEYS: [Key; KNOWN.len()] = {
    let mut keys = [Key { len: 0, words: [0; 3] }; KNOWN.len()];
    let mut id = 1;
    while id < KNOWN.len() {
        let name = KNOWN[id].name.as_bytes();
        assert!(name.len() <= 24, "a name has at most three words");
        let words = words(name);
        keys[id] =
            Key { len: name.len(), words: [lowercase(words[0]), lowercase(words[1]), lowercase(words[2])] };
        id += 1;
    }
    keys
};

/// Returns the number of a known header name, else `UNKNOWN`.
#[inline]
pub(crate) const fn classify(name: &[u8]) -> u8 {
    let id = TABLE[hash(name) as usize];
    if KEYS[id as usize].matches(name) { id } else { UNKNOWN }
}

/// A name as words, of which the last ones overlap. No known name is longer than three words.
#[derive(Clone, Copy)]
struct Key {
    len: usize,
    words: [u64; 3],
}

impl Key {
    /// Returns whether `name` is this name, ignoring case.
    #[inline]
    const fn matches(&self, name: &[u8]) -> bool {
        if self.len != name.len() {
            return false;
        }
        let [a, b, c] = words(name);
        let [x, y, z] = self.words;
        equals_ignoring_case(x, a) && equals_ignoring_case(y, b) && equals_ignoring_case(z, c)
    }
}

/// Returns all bytes of a name of up to 24 bytes.
#[inline]
const fn words(name: &[u8]) -> [u64; 3] {
    match (name.first_chunk(), name.last_chunk()) {
        (Some(first), Some(last)) => {
            let tail = name.split_at(name.len().saturating_sub(16)).1;
            let middle = match tail.first_chunk() {
                Some(middle) if name.len() > 16 => u64::from_le_bytes(*middle),
                _ => 0,
            };
            [u64::from_le_bytes(*first), u64::from_le_bytes(*last), middle]
        }
        _ => [half_words(name), 0, 0],
    }
}

/// Returns all bytes of a name of up to 7 bytes.
#[inline]
const fn half_words(name: &[u8]) -> u64 {
    match (name.first_chunk(), name.last_chunk(), name) {
        (Some(first), Some(last), _) => {
            u32::from_le_bytes(*first) as u64 | (u32::from_le_bytes(*last) as u64) << 32
        }
        (.., &[a, b, c]) => u32::from_le_bytes([a, b, c, 0]) as u64,
        (.., &[a, b]) => u32::from_le_bytes([a, b, 0, 0]) as u64,
        _ => 0,
    }
}

const CASE: u64 = 0x2020_2020_2020_2020;

/// Returns the case bits of all letters. Among the characters of known names, only letters have the bit 0x40.
const fn letters(word: u64) -> u64 {
    word >> 1 & CASE
}

const fn lowercase(word: u64) -> u64 {
    word | letters(word)
}

/// Returns whether eight bytes differ from those of a known name only in the case of letters.
const fn equals_ignoring_case(known: u64, other: u64) -> bool {
    other | letters(known) == known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case() {
        for known in KNOWN[1..].iter().step_by(if cfg!(miri) { 9 } else { 1 }) {
            let upper = known.name.to_ascii_uppercase();
            assert!(HeaderName::new(upper.as_bytes()).is_known(), "{upper}");
            assert_eq!(OwnedName::new(&upper).borrow().id, HeaderName::new(known.name.as_bytes()).id);
            let longer = format!("{}x", known.name);
            assert!(!HeaderName::new(longer.as_bytes()).is_known());
            for at in 0..known.name.len() {
                for flip in (0..8).map(|n| 1_u8 << n) {
                    let mut other = known.name.as_bytes().to_vec();
                    other[at] ^= flip;
                    let same = other.eq_ignore_ascii_case(known.name.as_bytes());
                    let id = classify(known.name.as_bytes()) as usize;
                    assert_eq!(KEYS[id].matches(&other), same, "{}", known.name);
                }
            }
        }
        assert_eq!(KNOWN.len(), 56);
        assert!(!HeaderName::new(b"").is_known());
    }

    #[test]
    fn filters_follow_the_table() {
        assert!(CONNECTION.is_filtered(Filter::PASS) && CONNECTION.is_filtered(Filter::INSERT));
        assert!(AGE.is_filtered(Filter::INSERT) && !AGE.is_filtered(Filter::PASS));
        assert!(RANGE.is_filtered(Filter::FETCH) && !RANGE.is_filtered(Filter::PASS));
        assert!(IF_NONE_MATCH.is_filtered(Filter::FETCH) && !IF_NONE_MATCH.is_filtered(Filter::PASS));
        assert!(!HOST.is_filtered(Filter::FETCH));
        assert!(UPGRADE.is_filtered(Filter::HTTP2) && !TE.is_filtered(Filter::HTTP2));
    }
}
