//! The default filters of a body on its way into storage and out of it, which VCL may override. The lists have the
//! form that users see in the log: each name is preceded by a space.

/// The content coding, as far as the cache distinguishes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    Identity,
    Gzip,
    /// An unknown coding: the body stays as it is.
    Other,
}

impl Coding {
    #[inline]
    pub fn of(content_encoding: Option<&[u8]>) -> Coding {
        match content_encoding {
            None => Coding::Identity,
            Some(value) if value.eq_ignore_ascii_case(b"gzip") => Coding::Gzip,
            Some(_) => Coding::Other,
        }
    }
}

/// The facts that determine the filters of a fetched response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetched {
    pub coding: Coding,
    /// `http_gzip_support`; without it `do_gzip` and `do_gunzip` have no effect.
    pub has_gzip_support: bool,
    pub do_gzip: bool,
    pub do_gunzip: bool,
    pub do_esi: bool,
}

/// Returns the filters between the origin and the storage. ESI needs plain text: a compressed body is decompressed
/// for it, and compressed again unless VCL requests otherwise. A body that stays compressed is verified.
#[inline]
pub fn into_storage(f: Fetched) -> &'static str {
    let is_gzip = f.coding == Coding::Gzip;
    let unpack = f.has_gzip_support && f.do_gunzip && is_gzip;
    let pack = f.has_gzip_support && f.do_gzip && f.coding == Coding::Identity;
    match (f.do_esi, is_gzip) {
        (true, true) if unpack => " gunzip esi",
        (true, true) => " gunzip esi_gzip",
        (true, false) if pack => " esi_gzip",
        (true, false) => " esi",
        (false, true) if unpack => " gunzip",
        (false, true) => " testgunzip",
        (false, false) if pack => " gzip",
        (false, false) => "",
    }
}

/// A filter that changes or checks the coding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recoder {
    Gunzip,
    Gzip,
    TestGunzip,
}

/// Returns whether a filter applies to a body. Partial bodies (206) are neither compressed nor decompressed.
#[inline]
pub fn has_work(recoder: Recoder, coding: Coding, status: u16) -> bool {
    let fits = match recoder {
        Recoder::Gzip => coding == Coding::Identity,
        Recoder::Gunzip | Recoder::TestGunzip => coding == Coding::Gzip,
    };
    fits && status != 206
}

/// The facts that determine the filters of a delivered response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The object has includes, and VCL has not disabled them.
    pub has_includes: bool,
    /// The body is stored compressed, and the client does not accept the coding (RFC 9110 section 12.5.3).
    pub needs_gunzip: bool,
    /// The request has a `Range` that may apply: the response is a 200 and ranges are supported.
    pub has_range: bool,
}

/// Returns the filters between the storage and the client.
#[inline]
pub fn to_client(d: Delivered) -> &'static str {
    match (d.has_includes, d.needs_gunzip, d.has_range) {
        (false, false, false) => "",
        (false, false, true) => " range",
        (false, true, false) => " gunzip",
        (false, true, true) => " gunzip range",
        (true, false, false) => " esi",
        (true, false, true) => " esi range",
        (true, true, false) => " esi gunzip",
        (true, true, true) => " esi gunzip range",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Coding::{Gzip, Identity, Other};

    #[test]
    fn only_gzip_is_a_known_coding() {
        for (value, expected) in [
            (None, Identity),
            (Some("gzip"), Gzip),
            (Some("GZip"), Gzip),
            (Some("x-gzip"), Other),
            (Some("gzip, gzip"), Other),
            (Some("br"), Other),
            (Some(""), Other),
        ] {
            assert_eq!(Coding::of(value.map(str::as_bytes)), expected, "{value:?}");
        }
    }

    #[test]
    fn filters_into_storage_depend_on_coding_and_vcl() {
        let table = [
            // coding, do_gzip, do_gunzip, do_esi: with http_gzip_support, without
            ((Identity, false, false, false), "", ""),
            ((Identity, true, false, false), " gzip", ""),
            ((Identity, false, true, false), "", ""),
            ((Gzip, false, false, false), " testgunzip", " testgunzip"),
            ((Gzip, true, false, false), " testgunzip", " testgunzip"),
            ((Gzip, false, true, false), " gunzip", " testgunzip"),
            ((Other, true, true, false), "", ""),
            ((Identity, false, false, true), " esi", " esi"),
            ((Identity, true, false, true), " esi_gzip", " esi"),
            ((Gzip, false, false, true), " gunzip esi_gzip", " gunzip esi_gzip"),
            ((Gzip, false, true, true), " gunzip esi", " gunzip esi_gzip"),
            ((Other, true, true, true), " esi", " esi"),
        ];
        for ((coding, do_gzip, do_gunzip, do_esi), with, without) in table {
            for (has_gzip_support, expected) in [(true, with), (false, without)] {
                let facts = Fetched { coding, has_gzip_support, do_gzip, do_gunzip, do_esi };
                assert_eq!(into_storage(facts), expected, "{facts:?}");
            }
        }
    }

    #[test]
    fn filters_apply_to_their_coding_and_to_whole_bodies() {
        let table = [
            (Recoder::Gzip, [true, false, false]),
            (Recoder::Gunzip, [false, true, false]),
            (Recoder::TestGunzip, [false, true, false]),
        ];
        for (recoder, expected) in table {
            for (coding, expected) in [Identity, Gzip, Other].into_iter().zip(expected) {
                assert_eq!(has_work(recoder, coding, 200), expected, "{recoder:?} {coding:?}");
                assert!(!has_work(recoder, coding, 206), "partial body: {recoder:?} {coding:?}");
            }
        }
    }

    #[test]
    fn filters_to_the_client_are_in_order() {
        for bits in 0..8 {
            let [has_includes, needs_gunzip, has_range] = [4, 2, 1].map(|bit| bits & bit != 0);
            let named = [(has_includes, " esi"), (needs_gunzip, " gunzip"), (has_range, " range")];
            let expected: String = named.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect();
            assert_eq!(to_client(Delivered { has_includes, needs_gunzip, has_range }), expected);
        }
    }
}
